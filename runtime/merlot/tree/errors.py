"""Errors in a query's text, or in the names that it uses."""

from typing import ClassVar

from merlot.codes import QueryErrorCode
from merlot.errors import InvalidInputError


class SqlError(InvalidInputError):
    """Base class of errors in a text. Its message has one line; `excerpt` shows the place."""

    token: int | None = None
    """Number of the text's token that the error is about; None if there is none, or none was recorded."""
    excerpt: str = ""
    """The line of the text and a caret below the word at fault (`sql.excerpts`); empty if no place is recorded."""


class SqlParseError(SqlError):
    """Raised if the text is not SQL of this dialect, or breaks a rule of GROUP BY or DISTINCT: Pinot's SQL_PARSING."""

    code: ClassVar[int] = QueryErrorCode.SQL_PARSING


class SqlValidationError(SqlError):
    """Raised if the text parses and its names resolve, but it makes no sense (Pinot's QUERY_VALIDATION)."""

    code: ClassVar[int] = QueryErrorCode.QUERY_VALIDATION


class UnsupportedSqlError(SqlValidationError):
    """Raised for valid SQL that is not supported. The message names the feature: `not supported yet: PIVOT`."""

    def __init__(self, feature: str) -> None:
        super().__init__(f"not supported yet: {feature}")
        self.feature = feature


class MisplacedAggregateError(SqlValidationError):
    """Raised for an aggregate in the WHERE of a query of one stage, on which Pinot's servers fail (QUERY_EXECUTION)."""

    code: ClassVar[int] = QueryErrorCode.QUERY_EXECUTION


class UnknownNameError(SqlValidationError):
    """Raised in a query of several stages for an unknown column or relation (QUERY_VALIDATION in Pinot's planner)."""


class UnknownColumnError(SqlError):
    """Raised in a query of one stage for an unknown column or relation (Pinot's UNKNOWN_COLUMN)."""

    code: ClassVar[int] = QueryErrorCode.UNKNOWN_COLUMN


class InvalidPlanError(InvalidInputError):
    """Raised for a plan that no broker makes: bytes that are no encoded tree, or a tree that binding would refuse."""

    code: ClassVar[int] = QueryErrorCode.QUERY_PLANNING
