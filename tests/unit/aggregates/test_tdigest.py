"""T-digests that hold no values, as rows may store them."""

import pyarrow as pa
import pytest

from merlot.aggregates.function import AggregateCall
from merlot.aggregates.tdigest import PercentileRawTDigest, PercentileTDigest, empty_digest
from merlot.tree.types import BYTES


@pytest.mark.parametrize("function", [PercentileTDigest(), PercentileRawTDigest()], ids=lambda function: function.name)
def test_stored_digests_without_values_are_null_with_null_handling(function: PercentileTDigest) -> None:
    stored = [pa.array([empty_digest(100), b""], pa.binary())]
    for nulls in (True, False):
        call = AggregateCall(types=(BYTES,), constants=(50,), result=function.result((), ()), nulls=nulls)
        assert function.finish(call, stored).to_arrow(2).is_null().to_pylist() == [nulls, nulls]
