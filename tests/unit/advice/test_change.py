"""A manifest's text with other indexing: comments and order stay, and what is read again is what was meant."""

import difflib
from pathlib import Path

import pytest

from merlot.advice.change import edited, indexing_yaml
from merlot.errors import InvalidInputError
from merlot.spec.derived import Granularity
from merlot.spec.indexing import IndexingSpec
from merlot.spec.manifest import load_tables
from merlot.spec.star_tree import StarTreeSpec

EXAMPLE = Path(__file__).resolve().parents[3] / "examples" / "flights" / "table.yaml"
HEAD = """apiVersion: merlot.dev/v1alpha1
kind: Table
metadata: {name: x} # the name
spec:
  timeColumn: at
  schema:
    fields: [{name: at, type: TIMESTAMP, role: dateTime}, {name: b, type: STRING}, {name: c, type: STRING}]
"""
TREE = StarTreeSpec(dimensions_split_order=("b",), function_column_pairs=("COUNT__*",))
ENDS = {
    "none": "",
    "none-before-more": "  replication: 1 # one\n",
    "empty": "  indexing: {} # none\n",
    "flow": "  indexing: {bloom: [b], inverted: [c]} # two\n",
    "block": "  indexing:\n    # why\n    inverted: [c] # this\n  replication: 1\n",
    "blocks": "  indexing:\n    inverted:\n    - c # this\n    # the end\n\n  replication: 1",
    "lines": "  indexing:\n    inverted: [\n      c, # this\n    ]\n",
    "tree": "  indexing:\n    inverted: [c]\n    starTreeIndexConfigs:\n      - dimensionsSplitOrder: [c]\n"
    "        functionColumnPairs: [COUNT__*] # all\n",
}


def changed_lines(before: str, after: str) -> list[str]:
    lines = list(difflib.unified_diff(before.splitlines(), after.splitlines(), lineterm="", n=0))[2:]
    return [line for line in lines if not line.startswith("@@")]


@pytest.mark.parametrize("end", ENDS.values(), ids=ENDS)
def test_every_way_to_write_it_is_edited_in_place(end: str) -> None:
    text = f"{HEAD}{end}"
    before = load_tables(text)[0].spec.indexing
    trees = (*before.star_tree_index_configs, TREE)
    update = {"inverted": (*before.inverted, "b"), "sorted_columns": ("b", "at"), "star_tree_index_configs": trees}
    after = before.model_copy(update=update)
    new = edited(text, "x", after)
    assert load_tables(new)[0].spec.indexing == after
    for comment in [line.partition("#")[2] for line in text.splitlines() if "#" in line]:
        assert f"#{comment}" in new


def test_the_example_keeps_all_its_lines_but_the_one_that_changes() -> None:
    text = EXAMPLE.read_text()
    before = load_tables(text)[0].spec.indexing
    after = before.model_copy(update={"inverted": (*before.inverted, "tailnum"), "range": ("dep_delay",)})
    assert changed_lines(text, edited(text, "flights", after)) == [
        "-    inverted: [carrier, origin, dest]",
        "+    inverted: [carrier, origin, dest, tailnum]",
        "+    range: [dep_delay]",
    ]


def test_only_the_table_that_is_meant_is_edited() -> None:
    text = f"{HEAD}---\n{HEAD.replace('name: x', 'name: y')}"
    new = edited(text, "y", IndexingSpec(inverted=("b",)))
    assert new.startswith(HEAD)
    assert [one.spec.indexing.inverted for one in load_tables(new)] == [(), ("b",)]


def test_a_text_that_says_nothing_of_the_table_is_refused() -> None:
    with pytest.raises(InvalidInputError, match="the file has no table=z"):
        edited(HEAD, "z", IndexingSpec())


def test_a_way_to_write_it_that_cannot_be_edited_is_refused() -> None:
    text = f"{HEAD}  indexing:\n    inverted: &mine [c]\n    bloom: *mine\n"
    if load_tables(text):
        with pytest.raises(InvalidInputError, match="cannot be edited"):
            edited(text, "x", IndexingSpec(inverted=("c", "b"), bloom=("c",)))


def test_what_changes_is_shown_as_it_is_written() -> None:
    before = IndexingSpec(inverted=("c",))
    after = before.model_copy(update={"range": ("at",), "star_tree_index_configs": (TREE,)})
    assert indexing_yaml(before, after) == (
        "range: [at]\nstarTreeIndexConfigs:\n- dimensionsSplitOrder: [b]\n  functionColumnPairs: [COUNT__*]\n"
    )


def test_units_of_times_are_written_as_a_mapping() -> None:
    for end in ("", "  indexing:\n    timestampGranularities: {at: [HOUR]} # hours\n"):
        after = IndexingSpec(timestamp_granularities={"at": (Granularity.HOUR, Granularity.DAY)})
        new = edited(f"{HEAD}{end}", "x", after)
        assert load_tables(new)[0].spec.indexing == after
