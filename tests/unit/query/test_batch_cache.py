"""What is kept of joined segments, while queries use it."""

from __future__ import annotations

from merlot.query.batch import BatchCache


class Growing:
    """A column during whose weighing another query joins one more."""

    def __init__(self, columns):
        self.columns = columns

    @property
    def nbytes(self):
        self.columns[len(self.columns)] = self
        return 1


def test_a_column_may_be_joined_while_batches_are_weighed(make_table):
    cache = BatchCache(1 << 20)
    fields = [{"name": "a", "type": "INT"}]
    first = make_table(fields, [{"a": 1}], [{"a": 2}]).segments
    for _ in range(2):
        batch = cache.batch(first)
    batch.columns[0] = Growing(batch.columns)
    assert cache.batch(first) is batch
