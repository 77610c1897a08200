"""Checks that need more than one field of a manifest, on the plain document.

They judge what is written, not the models: a problem in one field must not hide the problems of the others. What is
malformed is passed over here, because the models already name it.
"""

from collections.abc import Iterator, Mapping
from typing import Any

from merlot.spec.manifest_problems import Problem


def check(document: Mapping[str, Any]) -> Iterator[Problem]:
    """The problems between the fields of a Table document."""
    del document
    return iter(())
