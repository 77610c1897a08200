"""How computing with values ends where it cannot go on."""

from typing import ClassVar

from merlot.codes import QueryErrorCode
from merlot.errors import InvalidInputError


class LimitExceededError(InvalidInputError):
    """The query needs more groups, rows or bytes than the table allows."""

    code: ClassVar[int] = QueryErrorCode.SERVER_RESOURCE_LIMIT_EXCEEDED


class UnsupportedQueryError(InvalidInputError):
    """The query is meaningful, but this version cannot answer it."""

    code: ClassVar[int] = QueryErrorCode.QUERY_VALIDATION


class QueryArithmeticError(InvalidInputError):
    """A whole number does not fit into 64 bits, or a value cannot be cast."""

    code: ClassVar[int] = QueryErrorCode.QUERY_EXECUTION
