"""Queries of more than one stage over test tables, bound as a broker binds them."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping

from merlot.errors import NotFoundError
from merlot.query.plan.binding import fold
from merlot.spec.schema import TableSchema
from merlot.sql.budget import Budget
from merlot.sql.parse import ParsedStatement
from merlot.sql.stages.bind import StageContext, bind_statement
from merlot.tree.relations import Statement

_WANTED = re.compile(r"useMultistageEngine\s*=\s*'?true", re.IGNORECASE)


class FewGroups:
    """Sizes of tables whose groups are so much fewer than their rows that leaves group where they can."""

    def num_rows(self, table: str) -> int:
        """Millions; flights has most."""
        return 2_000_000 if table == "flights" else 1_000_000

    def num_groups(self, _table: str, _columns: Collection[str]) -> int:
        """A hundred."""
        return 100


FEW_GROUPS = FewGroups()


def is_staged(statement: ParsedStatement) -> bool:
    """Whether it takes several stages, or asks to be answered as if it did."""
    return statement.has_stages or _WANTED.search(statement.sql) is not None


def bind_stages(statement: ParsedStatement, schemas: Mapping[str, TableSchema]) -> Statement:
    """The typed tree."""

    def find_schema(name: str) -> TableSchema:
        if name not in schemas:
            raise NotFoundError(f"table does not exist table={name}")
        return schemas[name]

    return bind_statement(statement, StageContext(find_schema=find_schema, fold=fold, budget=Budget()), {})
