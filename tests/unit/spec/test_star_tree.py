"""Star-trees in a Table: what is taken, and what is refused with its path."""

from __future__ import annotations

from typing import Any

import pytest
import yaml

from merlot.spec import manifest
from merlot.spec.derived import Granularity
from merlot.spec.manifest import ManifestError
from merlot.spec.star_tree import StarTreeSpec, StoredFunction

FIELDS = [
    {"name": "country", "type": "STRING"},
    {"name": "browser", "type": "STRING"},
    {"name": "tags", "type": "STRING", "multiValue": True},
    {"name": "raw", "type": "STRING"},
    {"name": "clicks", "type": "LONG", "role": "metric"},
    {"name": "price", "type": "DOUBLE", "role": "metric"},
    {"name": "ts", "type": "TIMESTAMP", "role": "dateTime"},
    {"name": "secs", "type": "LONG", "role": "dateTime", "format": "EPOCH|SECONDS"},
    {"name": "day", "type": "STRING", "role": "dateTime", "format": "SIMPLE_DATE_FORMAT|yyyyMMdd"},
    {"name": "moments", "type": "LONG", "multiValue": True},
]
AHEAD = "computed ahead is DATETRUNC of TIMESTAMP, LONG and whole units"
PATH = "spec.indexing.starTreeIndexConfigs[0]"


def text(*trees: dict[str, Any], **indexing: Any) -> str:
    return yaml.safe_dump(
        {
            "apiVersion": "merlot.dev/v1alpha1",
            "kind": "Table",
            "metadata": {"name": "clicks"},
            "spec": {"schema": {"fields": FIELDS}, "indexing": {"starTreeIndexConfigs": list(trees), **indexing}},
        }
    )


def tree(**changed: Any) -> dict[str, Any]:
    return {"dimensionsSplitOrder": ["country", "browser"], "functionColumnPairs": ["SUM__clicks"], **changed}


def test_a_table_has_several_trees_with_pinots_names_and_defaults() -> None:
    [loaded] = manifest.load_tables(
        text(tree(), tree(functionColumnPairs=["COUNT__*", "AVG__price"], maxLeafRecords=100))
    )
    first, second = loaded.spec.indexing.star_tree_index_configs
    assert (first.max_leaf_records, first.skip_star_node_creation_for_dimensions) == (10_000, ())
    assert second.stored == (StoredFunction("count", ""), StoredFunction("sum", "price"))
    assert second.columns == {"country", "browser", "price"}


def test_functions_that_are_made_of_the_same_are_kept_once() -> None:
    pairs = ("SUM__clicks", "SUMLONG__clicks", "AVG__clicks", "MINMAXRANGE__clicks", "MAX__clicks", "count__*")
    spec = StarTreeSpec(dimensions_split_order=("country",), function_column_pairs=pairs)
    assert [one.function for one in spec.stored] == ["count", "max", "min", "sum"]


DIMENSION, PAIR = "dimensionsSplitOrder[0]", "functionColumnPairs[0]"
WRONG: list[tuple[dict[str, Any], str, str]] = [
    (
        {"dimensionsSplitOrder": ["country", "browser", "country"]},
        "dimensionsSplitOrder[2]",
        '"country" is named twice; keep one',
    ),
    (
        {"dimensionsSplitOrder": ["contry"]},
        DIMENSION,
        'no column "contry" in spec.schema.fields; did you mean country?',
    ),
    (
        {"dimensionsSplitOrder": ["tags"]},
        DIMENSION,
        'column "tags" is multi-valued; a dimension of a star-tree has one value per row',
    ),
    (
        {"dimensionsSplitOrder": ["raw"]},
        DIMENSION,
        'a dimension of a star-tree needs a dictionary; take "raw" out of here, or out of the raw columns',
    ),
    (
        {"skipStarNodeCreationForDimensions": ["browser", "tags"]},
        "skipStarNodeCreationForDimensions[1]",
        "a dimension that is skipped is not in dimensionsSplitOrder",
    ),
    (
        {"functionColumnPairs": ["DISTINCTCOUNT__country"]},
        PAIR,
        "a star-tree cannot keep DISTINCTCOUNT: intermediate result Set is unbounded",
    ),
    (
        {"functionColumnPairs": ["PERCENTILE__clicks"]},
        PAIR,
        "a star-tree cannot keep PERCENTILE: intermediate result List is unbounded",
    ),
    (
        {"functionColumnPairs": ["SUM__clicks", "SUN__clicks"]},
        "functionColumnPairs[1]",
        'unknown function "SUN"; did you mean SUM?',
    ),
    ({"functionColumnPairs": ["SUM"]}, PAIR, "names no column; write SUM__ and one"),
    (
        {"functionColumnPairs": ["COUNT__clicks"]},
        PAIR,
        "rows are counted, whatever a column holds; write COUNT__*",
    ),
    (
        {"functionColumnPairs": ["SUM__clicks", "Sum__clicks"]},
        "functionColumnPairs[1]",
        '"Sum__clicks" is named twice; keep one',
    ),
    (
        {"functionColumnPairs": ["MAX__clics"]},
        PAIR,
        'no column "clics" in spec.schema.fields; did you mean clicks?',
    ),
    (
        {"functionColumnPairs": ["SUMLONG__price"]},
        PAIR,
        'column "price" is DOUBLE; SUMLONG of a star-tree takes BOOLEAN, INT, LONG, TIMESTAMP',
    ),
    (
        {"functionColumnPairs": ["DISTINCTCOUNTHLL__tags"]},
        PAIR,
        'column "tags" is multi-valued; DISTINCTCOUNTHLL takes one value per row',
    ),
    *(
        ({"dimensionsSplitOrder": ["country", written]}, "dimensionsSplitOrder[1]", message)
        for written, message in (
            ("DATETRUNC('day', secz)", 'no column "secz" in spec.schema.fields; did you mean secs?'),
            ("$secz$DAY", 'no column "secz" in spec.schema.fields; did you mean secs?'),
            (
                "DATETRUNC('DAY', moments)",
                'column "moments" is multi-valued; what is computed ahead has one value per row',
            ),
            (
                "$day$MONTH",
                f'column "day" is STRING SIMPLE_DATE_FORMAT|yyyyMMdd; {AHEAD}',
            ),
            (
                "DATETRUNC('DAY', ts, 'SECONDS')",
                'column "ts" is in MILLISECONDS, not in SECONDS; write DATETRUNC(unit, ts) alone',
            ),
            (
                "DATETRUNC('FORTNIGHT', ts)",
                f"unknown granularity FORTNIGHT; one of {', '.join(Granularity)}",
            ),
            (
                "UPPER('x', country)",
                "not a function that is computed ahead: UPPER('x', country); write DATETRUNC('DAY', column)",
            ),
        )
    ),
    (
        {"dimensionsSplitOrder": ["DATETRUNC('day', ts)", "country", "$ts$DAY"]},
        "dimensionsSplitOrder[2]",
        '"$ts$DAY" is named twice; keep one',
    ),
    (
        {
            "dimensionsSplitOrder": ["DATETRUNC('day', ts)", "country"],
            "skipStarNodeCreationForDimensions": ["DATETRUNC('DAY',ts)", "$ts$MONTH"],
        },
        "skipStarNodeCreationForDimensions[1]",
        '"$ts$MONTH" is not in dimensionsSplitOrder; one of $ts$DAY, country',
    ),
    ({"maxLeafRecords": 0}, "maxLeafRecords", "must be at least 1, got 0"),
    ({"dimensionSplitOrder": []}, "dimensionSplitOrder", "unknown field; did you mean dimensionsSplitOrder?"),
]


@pytest.mark.parametrize(("changed", "field", "message"), WRONG)
def test_what_a_tree_cannot_be_is_named_with_its_path(changed: dict[str, Any], field: str, message: str) -> None:
    with pytest.raises(ManifestError) as caught:
        manifest.load(text(tree(**changed), noDictionary=["raw"]))
    assert [str(problem) for problem in caught.value.problems] == [f"{PATH}.{field}: {message}"]


def test_a_tree_has_up_to_64_dimensions() -> None:
    with pytest.raises(ManifestError) as caught:
        manifest.load(text(tree(dimensionsSplitOrder=[f"d{number}" for number in range(65)])))
    assert any(
        problem.path == f"{PATH}.dimensionsSplitOrder" and "64" in problem.message for problem in caught.value.problems
    )


def test_the_same_tree_twice_is_refused() -> None:
    with pytest.raises(ManifestError, match="declared twice"):
        manifest.load(text(tree(), tree()))


def test_a_dimension_that_is_a_function_has_one_name_however_it_is_written() -> None:
    for written in (
        "DATETRUNC('day', ts)",
        "date_trunc( 'DAY' , \"ts\" )",
        "$ts$DAY",
        "DATETRUNC('Day', ts, 'milliseconds')",
    ):
        [loaded] = manifest.load_tables(text(tree(dimensionsSplitOrder=[written, "DATETRUNC('MONTH', secs)"])))
        [found] = loaded.spec.indexing.star_tree_index_configs
        assert found.dimensions_split_order == ("$ts$DAY", "$secs$MONTH")
        assert [one.name for one in loaded.spec.indexing.derived] == ["$secs$MONTH", "$ts$DAY"]


@pytest.mark.parametrize(
    ("granularities", "field", "message"),
    [
        ({"secz": ["DAY"]}, "secz", 'no column "secz" in spec.schema.fields; did you mean secs?'),
        ({"country": ["DAY"]}, "country", 'column "country" is STRING without a format'),
        ({"moments": ["DAY"]}, "moments", 'column "moments" is multi-valued'),
        ({"ts": ["DAY", "DAY"]}, "ts[1]", "DAY is named twice; keep one"),
    ],
)
def test_what_granularities_cannot_be_is_named_with_its_path(
    granularities: dict[str, list[str]], field: str, message: str
) -> None:
    with pytest.raises(ManifestError) as caught:
        manifest.load(text(timestampGranularities=granularities))
    [problem] = caught.value.problems
    assert problem.path == f"spec.indexing.timestampGranularities.{field}"
    assert message in problem.message
