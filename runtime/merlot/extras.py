"""Say how to install a missing library: by the extras of pyproject.toml, from a checkout.

The name `merlot` on PyPI is another project's, so no text may send anybody there.
"""

from __future__ import annotations


def remedy(extra: str) -> str:
    """Return how to install an extra, as the end of a sentence."""
    return f"run `pip install -e '.[{extra}]'` in a checkout of Merlot"


def lacks(what: str, extra: str, error: ModuleNotFoundError) -> str:
    """Return why `what` cannot go on without an extra, in one line."""
    return f"{what} needs the extra {extra}, and {error.name} is not installed: {remedy(extra)}"
