"""Rounding numbers."""

from __future__ import annotations

from typing import Final

from merlot.functions.function import Binding, Family, number
from merlot.tree.errors import UnsupportedSqlError
from merlot.tree.nodes import Call, Expr
from merlot.tree.types import LONG
from merlot.values.types import TypeName

ROUNDING: Final = Family("Rounding")


@ROUNDING.rewriting("round", parameters=(number("x"), number("bucket")), result=LONG, examples={"ROUND(17, 5)": 15})
def _round(_binding: Binding, args: tuple[Expr, ...]) -> Expr:
    """The multiple of the bucket towards zero: Pinot's time bucketing, of whole numbers."""
    if not all(arg.type.is_integer or arg.type.base is TypeName.TIMESTAMP for arg in args):
        raise UnsupportedSqlError("ROUND of anything but whole numbers")
    return Call("minus", (args[0], Call("mod", args, LONG)), LONG)
