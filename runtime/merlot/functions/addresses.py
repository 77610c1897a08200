"""IP addresses, versions 4 and 6, and the blocks that they lie in. Equal arguments are computed once."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from ipaddress import IPv4Network, IPv6Network, ip_network
from typing import Any, Final

from merlot.functions.by_value import by_value
from merlot.functions.function import Family, VectorFunction, text, whole
from merlot.tree.types import BOOLEAN, STRING, SqlType
from merlot.vectors.vector import Vector

ADDRESSES: Final = Family("IP addresses")

Block = IPv4Network | IPv6Network


def _block(written: str) -> Block | None:
    """Parse a block such as 10.0.0.0/8; bits of its address beyond the prefix are ignored. An address is a block of one
    address. Return None for any other text."""
    try:
        return ip_network(written, strict=False)
    except ValueError:
        return None


def _lies_in(outer: str, inner: str) -> bool | None:
    block, part = _block(outer), _block(inner)
    if block is None or part is None:
        return None
    if isinstance(block, IPv4Network):
        return isinstance(part, IPv4Network) and part.subnet_of(block)
    return isinstance(part, IPv6Network) and part.subnet_of(block)


@ADDRESSES.strict(
    "issubnetof",
    parameters=(text("block"), text("address")),
    result=BOOLEAN,
    examples={
        "IS_SUBNET_OF('192.168.0.0/24', '192.168.0.225')": True,
        "ISSUBNETOF('1.2.3.128/26', '3.175.47.239')": False,
        "ISSUBNETOF('2001:db8::/32', '2001:db8:1::/48')": True,
    },
)
def _is_subnet_of(_type: SqlType, args: Sequence[Vector]) -> Any:
    """Return True for rows whose address, or block, lies in their block."""
    return by_value(BOOLEAN, args, _lies_in, "text is no IP address or block function=issubnetof")


@ADDRESSES.strict(
    "ipprefix",
    parameters=(text("address"), whole("bits")),
    result=STRING,
    examples={"IP_PREFIX('10.1.2.3', 8)": "10.0.0.0/8", "IPPREFIX('2001:db8:85a3::8a2e', 32)": "2001:db8::/32"},
)
def _ip_prefix(_type: SqlType, args: Sequence[Vector]) -> Any:
    """Return the block that each address lies in, for a prefix of the given number of bits."""

    def compute(address: str, bits: int) -> str | None:
        block = None if "/" in address else _block(f"{address}/{bits}")
        return None if block is None else str(block)

    return by_value(STRING, args, compute, "text is no IP address, or has fewer bits function=ipprefix")


def _end(of: Callable[[Block], Any], name: str) -> VectorFunction:
    def apply(_type: SqlType, args: Sequence[Vector]) -> Any:
        def compute(written: str) -> str | None:
            block = _block(written)
            return None if block is None else str(of(block))

        return by_value(STRING, args, compute, f"text is no IP block function={name}")

    return apply


for _name, _of, _example in (
    ("ipsubnetmin", lambda block: block.network_address, "192.168.0.0"),
    ("ipsubnetmax", lambda block: block.broadcast_address, "192.168.0.255"),
):
    ADDRESSES.strict(
        _name,
        parameters=(text("block"),),
        result=STRING,
        examples={f"{_name.upper()}('192.168.0.225/24')": _example},
    )(_end(_of, _name))
