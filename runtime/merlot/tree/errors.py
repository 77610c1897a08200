"""What can be wrong with a query's text or with what it names."""

from typing import ClassVar

from merlot.codes import QueryErrorCode
from merlot.errors import InvalidInputError


class SqlParseError(InvalidInputError):
    """The text is not SQL of this dialect, or breaks a rule of GROUP BY or DISTINCT: Pinot's SQL_PARSING."""

    code: ClassVar[int] = QueryErrorCode.SQL_PARSING


class SqlValidationError(InvalidInputError):
    """The text parses and its names resolve, but it makes no sense (Pinot's QUERY_VALIDATION)."""

    code: ClassVar[int] = QueryErrorCode.QUERY_VALIDATION


class UnsupportedSqlError(SqlValidationError):
    """Valid SQL that is outside the subset, refused by its name: `not supported yet: JOIN`."""

    def __init__(self, feature: str) -> None:
        super().__init__(f"not supported yet: {feature}")
        self.feature = feature


class MisplacedAggregateError(SqlValidationError):
    """An aggregate in the WHERE of one stage, on which servers of Pinot's fail (QUERY_EXECUTION)."""

    code: ClassVar[int] = QueryErrorCode.QUERY_EXECUTION


class UnknownNameError(SqlValidationError):
    """A name that no relation of a query of several stages has (to Pinot's planner a QUERY_VALIDATION)."""


class UnknownColumnError(InvalidInputError):
    """A name that is no column of the table and no alias of the query (Pinot's UNKNOWN_COLUMN)."""

    code: ClassVar[int] = QueryErrorCode.UNKNOWN_COLUMN


class InvalidPlanError(InvalidInputError):
    """A plan that no broker makes: bytes that are not an encoded tree, or a tree that binding would refuse."""

    code: ClassVar[int] = QueryErrorCode.QUERY_PLANNING
