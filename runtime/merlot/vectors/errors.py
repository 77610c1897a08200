"""Errors of computing with values."""

from typing import ClassVar

from merlot.codes import QueryErrorCode
from merlot.errors import InvalidInputError


class LimitExceededError(InvalidInputError):
    """Raised if the query needs more groups, rows or bytes than the table, an engine or the memory allows."""

    code: ClassVar[int] = QueryErrorCode.SERVER_RESOURCE_LIMIT_EXCEEDED


class UnsupportedQueryError(InvalidInputError):
    """Raised if the query is meaningful, but this version cannot answer it."""

    code: ClassVar[int] = QueryErrorCode.QUERY_VALIDATION


class QueryArithmeticError(InvalidInputError):
    """Raised if a value that the query needs cannot be computed: a sum beyond 64 bits, or a text that is no number."""

    code: ClassVar[int] = QueryErrorCode.QUERY_EXECUTION
