"""Pages list what the specification knows: a table of docs/ whose rows are words of a manifest has all of them."""

import re
from collections.abc import Collection
from pathlib import Path

import pytest
from pydantic import AliasChoices, BaseModel
from pydantic.fields import FieldInfo

from merlot.aggregates.sketches import MERGES
from merlot.merge.folds import FOLDS
from merlot.spec.indexing import IndexingSpec
from merlot.spec.manifest.stream_checks import METADATA_TYPES
from merlot.spec.stream import DecoderType
from merlot.spec.tasks import MergeLevel, MergeRollupSpec, MergeType, RollupFunction
from merlot.spec.upserting import PartialUpsertStrategy, UpsertSpec

DOCS = Path(__file__).parents[3] / "docs"


def rows_of(page: str, head: str, cell: int = 1) -> list[str]:
    """The words in backticks of a column's cells in the table whose first line begins with `head`."""
    lines = (DOCS / page).read_text().splitlines()
    (start,) = [place for place, line in enumerate(lines) if line.startswith(head)]
    words: list[str] = []
    for line in lines[start + 2 :]:
        if not line.startswith("|"):
            break
        words += re.findall(r"`([^`]+)`", line.split("|")[cell])
    return words


@pytest.mark.parametrize(
    ("page", "head", "known"),
    [
        ("merge-rollup.md", "| `aggregationType` |", list(RollupFunction)),
        ("merge-rollup.md", "| `mergeType` |", list(MergeType)),
        ("streams.md", "| type | a message is |", list(DecoderType)),
        ("upserts.md", "| strategy | stores |", list(PartialUpsertStrategy)),
        ("streams.md", "| metadata |", [name if name != "headers" else "headers.<name>" for name in METADATA_TYPES]),
    ],
)
def test_table_of_a_page_lists_every_word_and_no_other(page: str, head: str, known: Collection[str]) -> None:
    assert sorted(rows_of(page, head)) == sorted(known)


@pytest.mark.parametrize(
    ("page", "head", "cell", "model"),
    [
        ("merge-rollup.md", "| field of a level |", 1, MergeLevel),
        ("merge-rollup.md", "| field of `spec` |", 1, MergeRollupSpec),
        ("indexes.md", "| index | field |", 2, IndexingSpec),
        ("upserts.md", "| field | does |", 1, UpsertSpec),
    ],
)
def test_table_of_fields_names_fields(page: str, head: str, cell: int, model: type[BaseModel]) -> None:
    named = {word.partition(":")[0] for word in rows_of(page, head, cell)}
    assert len(named) > 3
    aliases = {field.alias for field in model.model_fields.values()}
    aliases |= {str(name) for field in model.model_fields.values() for name in other_names(field)}
    assert named <= aliases


def other_names(field: FieldInfo) -> list[object]:
    choices = field.validation_alias
    return list(choices.choices) if isinstance(choices, AliasChoices) else [choices]


def test_rollups_can_do_what_a_manifest_may_ask_for() -> None:
    assert {function.upper() for function in RollupFunction} == FOLDS.keys() | MERGES.keys()
