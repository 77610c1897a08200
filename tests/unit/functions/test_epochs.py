"""Results that lie beyond LONG by little are its nearest end."""

import pytest
from tests.contracts.functions.values import value_of

LEAST, GREATEST = -(2**63), 2**63 - 1


def long(number: int) -> str:
    return f"CAST('{number}' AS LONG)"


@pytest.mark.parametrize(
    ("sql", "wanted"),
    [
        (f"TIMESTAMPADD('MILLISECOND', -1, {long(LEAST)})", LEAST),
        (f"TIMESTAMPADD('MILLISECOND', 1, {long(LEAST)})", LEAST + 1),
        (f"TIMESTAMPADD('SECOND', -1, {long(LEAST)})", LEAST),
        (f"TIMESTAMPADD('SECOND', 1, {long(GREATEST)})", GREATEST),
        (f"TIMESTAMPADD('MILLISECOND', -1, {long(GREATEST)})", GREATEST - 1),
        (f"TIMESTAMPADD('WEEK', {long(GREATEST)}, 0)", GREATEST),
        (f"TIMESTAMPADD('WEEK', {long(LEAST)}, 0)", LEAST),
        (f"TIMESTAMPADD('MONTH', 0, {long(LEAST)})", LEAST),
        (f"TIMESTAMPADD('MONTH', -1, {long(LEAST)})", LEAST),
        (f"TIMESTAMPADD('MONTH', 0, {long(GREATEST)})", GREATEST),
        (f"TIMESTAMPADD('MONTH', 1, {long(GREATEST)})", GREATEST),
        (f"TIMESTAMPADD('YEAR', {long(GREATEST)}, 0)", GREATEST),
        (f"TIMESTAMPADD('YEAR', {long(LEAST)}, 0)", LEAST),
        (f"TIMESTAMPDIFF('MILLISECOND', 1000, {long(LEAST)})", LEAST),
        (f"TIMESTAMPDIFF('MILLISECOND', -1, {long(GREATEST)})", GREATEST),
        (f"TIMESTAMPDIFF('MILLISECOND', {long(LEAST)}, {long(GREATEST)})", GREATEST),
        (f"FROMEPOCHSECONDSBUCKET({long(LEAST)}, 1)", LEAST),
        (f"FROMEPOCHSECONDSBUCKET({long(LEAST // 3 - 1)}, 3)", LEAST),
    ],
)
def test_results_beyond_long_are_the_nearest_long(sql: str, wanted: int) -> None:
    assert value_of(sql) == wanted
