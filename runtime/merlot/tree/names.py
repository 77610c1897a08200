"""How names of functions are compared."""


def canonical_key(name: str) -> str:
    """Without case and underscores, as Pinot does: `DATE_TRUNC` is `datetrunc`."""
    return name.replace("_", "").lower()
