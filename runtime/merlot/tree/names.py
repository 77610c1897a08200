"""Compare names of functions."""


def canonical_key(name: str) -> str:
    """Return the name without case and underscores, as Pinot compares it: `DATE_TRUNC` is `datetrunc`."""
    return name.replace("_", "").lower()
