"""Errors of computing with values."""

from typing import ClassVar

from merlot.codes import QueryErrorCode
from merlot.errors import InvalidInputError


class LimitExceededError(InvalidInputError):
    """Raised if the query needs more groups, rows or bytes than the table allows."""

    code: ClassVar[int] = QueryErrorCode.SERVER_RESOURCE_LIMIT_EXCEEDED


class UnsupportedQueryError(InvalidInputError):
    """Raised if the query is meaningful, but this version cannot answer it."""

    code: ClassVar[int] = QueryErrorCode.QUERY_VALIDATION


class QueryArithmeticError(InvalidInputError):
    """Raised if a whole number does not fit into 64 bits, or a value cannot be cast."""

    code: ClassVar[int] = QueryErrorCode.QUERY_EXECUTION
