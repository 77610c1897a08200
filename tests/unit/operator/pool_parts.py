"""A pool of three servers, for tests of what is done to it."""

from merlot.spec.tenancy import Resources
from merlot_operator.config import Config
from merlot_operator.desired.demand import PoolDemand

CONFIG = Config(metastore="zk://zk:2181/m", deep_store="s3://b/m", runtime_image="r:1", spark_image="s:1")
DEMAND = PoolDemand(
    namespace="n",
    name="pool",
    tenant="own-flights",
    tables=("flights",),
    owner=None,
    replicas=3,
    wanted_replicas=3,
    resources=Resources(),
    storage="10Gi",
    storage_class="",
    stores={},
    restarted_at="",
    deletes_claims=False,
)
