"""Rules of `spec.indexing.starTreeIndexConfigs` of a Table."""

from typing import Final

from merlot.spec.rules.language import ITEM, every, has
from merlot.spec.rules.rule import Rule

_ORDER: Final = ITEM.field("dimensionsSplitOrder")
_SKIPPED: Final = ITEM.field("skipStarNodeCreationForDimensions")
TREE: Final = (
    Rule(
        "skipStarNodeCreationForDimensions",
        # A derived column has several spellings, so `star_tree_checks` compares it.
        has(_SKIPPED) >> every(_SKIPPED, "d", lambda d: d.is_member_of(_ORDER) | d.starts_with("$") | d.contains("(")),
        "a dimension that is skipped is not in dimensionsSplitOrder",
    ),
)
