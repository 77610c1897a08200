"""Compare an object with what is wanted: every wanted field has to have the wanted value. Pure.

The API server fills in defaults and other writers add fields; neither is a difference. Lists whose items have names
(containers, variables, volumes, ports) are compared by name, others item by item.
"""

from __future__ import annotations

from collections.abc import Mapping
from decimal import Decimal
from typing import Any

_NOTHING: tuple[Any, ...] = ({}, [], None)
_FACTORS = {
    "": Decimal(1),
    "m": Decimal("0.001"),
    **{unit: Decimal(1000) ** power for power, unit in enumerate("kMGTPE", start=1)},
    **{f"{unit}i": Decimal(1024) ** power for power, unit in enumerate("KMGTPE", start=1)},
}


def holds(live: Any, wanted: Any) -> bool:
    """Return True if `live` has everything that `wanted` asks for."""
    if isinstance(wanted, Mapping):
        return isinstance(live, Mapping) and all(
            key in live and holds(live[key], value) for key, value in wanted.items() if value not in _NOTHING
        )
    if isinstance(wanted, list):
        return isinstance(live, list) and _holds_list(live, wanted)
    if isinstance(wanted, str) and isinstance(live, str) and live != wanted:
        return _is_same_quantity(live, wanted)
    return bool(live == wanted)


def differences(live: Any, wanted: Any, path: str = "") -> dict[str, Any]:
    """Return the live values, by path, of the smallest parts of `wanted` that `live` does not have. A list is a single
    part."""
    if holds(live, wanted):
        return {}
    if not (isinstance(live, Mapping) and isinstance(wanted, Mapping)):
        return {path: live}
    parts: dict[str, Any] = {}
    for key, value in wanted.items():
        if value not in _NOTHING:
            parts |= differences(live.get(key), value, f"{path}.{key}".lstrip("."))
    return parts


def quantity(text: str) -> Decimal:
    """Return the number of a Kubernetes quantity. Raise ArithmeticError or KeyError if the text is no quantity."""
    number = text.rstrip("kKMGTPEim")
    return Decimal(number) * _FACTORS[text[len(number) :]]


def _holds_list(live: list[Any], wanted: list[Any]) -> bool:
    if all(isinstance(item, Mapping) and "name" in item for item in (*live, *wanted)):
        by_name = {item["name"]: item for item in live}
        return all(item["name"] in by_name and holds(by_name[item["name"]], item) for item in wanted)
    return len(live) == len(wanted) and all(map(holds, live, wanted))


def _is_same_quantity(live: str, wanted: str) -> bool:
    """Return True if both texts are the same quantity: the API server writes 1000m as 1."""
    if not (live[:1].isdigit() and wanted[:1].isdigit()) or len(live) > 20 or len(wanted) > 20:
        return False
    try:
        return quantity(live) == quantity(wanted)
    except (ArithmeticError, KeyError, ValueError):
        return False
