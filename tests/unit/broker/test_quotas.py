"""Shares of a table's queries, by the clock; and a broker that refuses what is over them."""

from contextlib import suppress
from dataclasses import dataclass, field
from types import SimpleNamespace

import pytest

from merlot.broker.quotas import QuotaExceededError, Quotas
from merlot.codes import QueryErrorCode
from merlot.ids import TableName
from merlot.spec.table import QueryLimits


@dataclass
class Served:
    """What quotas ask of a table."""

    name: TableName
    limit: float | None = None
    spec: SimpleNamespace = field(init=False)

    def __post_init__(self):
        self.spec = SimpleNamespace(limits=QueryLimits(max_queries_per_second=self.limit))

    @property
    def raw_name(self):
        return self.name.removesuffix("_OFFLINE")


def taken(quotas, tables, times, *, num_brokers=1):
    """How many of the queries at these times may run."""
    passed = 0
    for now_s in times:
        with suppress(QuotaExceededError):
            quotas.take(tables, num_brokers, now_s)
            passed += 1
    return passed


def test_a_burst_is_a_second_s_worth_and_what_follows_comes_at_the_pace():
    quotas, table = Quotas(), Served(TableName("t_OFFLINE"), 5)
    assert taken(quotas, [table], [100.0] * 50) == 5
    assert taken(quotas, [table], [100 + number / 100 for number in range(1, 201)]) == 10


def test_brokers_share_the_quota_and_each_answers_one_at_least_now_and_then():
    table = Served(TableName("t_OFFLINE"), 1)
    quotas = Quotas()
    assert taken(quotas, [table], [0.0] * 9, num_brokers=4) == 1
    assert taken(quotas, [table], [1.0, 2.0, 3.0, 3.9], num_brokers=4) == 0
    assert taken(quotas, [table], [4.0, 4.1], num_brokers=4) == 1


def test_a_query_of_two_tables_is_charged_to_both_or_to_none():
    quotas = Quotas()
    scarce, ample = Served(TableName("a_OFFLINE"), 1), Served(TableName("b_OFFLINE"), 3)
    assert taken(quotas, [ample, scarce], [0.0] * 5) == 1
    assert taken(quotas, [ample], [0.0] * 5) == 2


def test_a_table_without_a_limit_takes_all_and_a_new_limit_holds_at_once():
    quotas = Quotas()
    assert taken(quotas, [Served(TableName("t_OFFLINE"))], [0.0] * 100) == 100
    assert taken(quotas, [Served(TableName("t_OFFLINE"), 2)], [0.0] * 100) == 2
    assert taken(quotas, [Served(TableName("t_OFFLINE"))], [0.0] * 100) == 100


def test_the_error_names_table_limit_and_brokers():
    quotas, table = Quotas(), Served(TableName("t_OFFLINE"), 0.5)
    quotas.take([table], 2, 0.0)
    with pytest.raises(QuotaExceededError, match=r"table=t maxQueriesPerSecond=0\.5 brokers=2") as refused:
        quotas.take([table], 2, 0.0)
    assert refused.value.code == QueryErrorCode.TOO_MANY_REQUESTS
