"""What has no value in rows that a statement drops fails no query, wherever the condition that drops them stands."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa
import pytest
from tests.sql.slt_data import Dataset
from tests.sql.slt_layouts import InProcess, one_segment

from merlot.spec.schema import TableSchema

_TYPES = {"id": "INT", "a": "INT", "l": "LONG"}
_SCHEMA = TableSchema.model_validate({"fields": [{"name": name, "type": type_} for name, type_ in _TYPES.items()]})
_ROWS = 40
_FAILING = {
    "a function": "10 % ({0} + {1})",
    "an overflow": "({0} + {1} - 2) - 9223372036854775807",
    "a cast": "CAST(CASE WHEN {0} + {1} = 0 THEN 'no' ELSE '7' END AS INT)",
}
_JOIN = "t JOIN u ON t.id = u.id"
_FORMS = {
    "beside what may fail": f"SELECT t.id FROM {_JOIN} WHERE [t.a|u.a] <> 12345 AND t.l + u.l <> 0",
    "where": f"SELECT t.id FROM {_JOIN} WHERE t.a + u.a <> 0 AND [t.a|u.a] <> 12345",
    "where, the other way round": f"SELECT t.id FROM {_JOIN} WHERE [t.a|u.a] <> 12345 AND t.a + u.a <> 0",
    "on": f"SELECT t.id FROM {_JOIN} AND t.a + u.a <> 0 WHERE [t.a|u.a] <> 12345",
    "all in on": f"SELECT t.id FROM {_JOIN} AND [t.a|u.a] <> 12345 AND t.a + u.a <> 0",
    "column": f"SELECT * FROM (SELECT [t.a|u.a] AS r FROM {_JOIN} WHERE t.a + u.a <> 0) AS z WHERE r <> 12345",
    "with": f"WITH z AS (SELECT [t.a|u.a] AS r FROM {_JOIN} WHERE t.a + u.a <> 0) SELECT r FROM z WHERE r <> 12345",
    "above": f"SELECT * FROM (SELECT t.a, u.a AS b FROM {_JOIN} WHERE t.a + u.a <> 0) AS z WHERE [z.a|z.b] <> 12345",
    "two above": "SELECT * FROM (SELECT y.r FROM (SELECT [t.a|u.a] AS r "
    f"FROM {_JOIN} WHERE t.a + u.a <> 0) AS y) AS z WHERE r <> 12345",
    "union": f"SELECT * FROM (SELECT [t.a|u.a] AS r FROM {_JOIN} WHERE t.a + u.a <> 0 "
    "UNION ALL SELECT 1 FROM t WHERE id < 0) AS z WHERE r <> 12345",
    "having": f"SELECT t.id FROM {_JOIN} WHERE t.a + u.a <> 0 GROUP BY t.id, [t.a|u.a] HAVING [t.a|u.a] <> 12345",
    "join": f"SELECT t.id FROM t JOIN (SELECT t.id, [t.a|u.a] AS r FROM {_JOIN} WHERE t.a + u.a <> 0) AS z "
    "ON t.id = z.id AND z.r <> t.a + 12345",
}


@pytest.fixture(scope="module")
def layout(tmp_path_factory: pytest.TempPathFactory) -> Iterator[InProcess]:
    ids = pa.array(range(_ROWS), pa.int32())
    numbers = [number % 4 for number in range(_ROWS)]
    rows = pa.table({"id": ids, "a": pa.array(numbers, pa.int32()), "l": pa.array(numbers, pa.int64())})
    tables = [Dataset(name=name, schema=_SCHEMA, rows=rows) for name in "tu"]
    with one_segment(tables, tmp_path_factory.mktemp("failures")) as made:
        assert isinstance(made, InProcess)
        yield made


@pytest.mark.parametrize("failing", _FAILING.values(), ids=_FAILING)
@pytest.mark.parametrize("form", _FORMS.values(), ids=_FORMS)
def test_a_row_that_is_dropped_fails_nothing(layout: InProcess, form: str, failing: str) -> None:
    start, *rest = form.split("[")
    sql = start
    for piece in rest:
        operands, _, after = piece.partition("]")
        sql += failing.format(*operands.split("|")) + after
    assert len(layout.query(sql).rows) == _ROWS * 3 // 4
