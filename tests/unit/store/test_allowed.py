"""Which deep stores and sources a Table may name."""

import pytest

from merlot.errors import InvalidInputError
from merlot.store.allowed import AllowedSources, AllowedStores

OWN = "s3://deep/merlot/shop?region=eu-west-1&endpoint_override=minio.shop.svc:9000"
STORES = AllowedStores(
    own=OWN, prefixes=("s3://other/shop", "file:///data", "hdfs://name-node:8020/merlot", "gs://bucket/x")
)
ELSEWHERE = "must be below"
OTHER_HOST = "endpoint_override must be"
WRITE = "write s3://bucket/path, gs://bucket/path, hdfs://host/path or file:///path"
NO_AZURE = "it names no container@account.dfs.core.windows.net"


@pytest.mark.parametrize(
    "uri",
    [
        OWN,
        "s3://deep/merlot/shop/own?endpoint_override=minio.shop.svc:9000",
        "S3://deep/merlot/shop?endpoint_override=MINIO.shop.svc.:9000",
        "s3://other/shop/inner?region=eu-west-1",
        "file:///data",
        "file:///data/inner%20folder",
        "hdfs://name-node:8020/merlot/orders",
    ],
)
def test_a_table_s_deep_store_may_be_below_the_process_own_and_below_its_prefixes(uri: str) -> None:
    assert STORES.problem_of(uri) is None
    assert STORES.uri_of(uri) == uri


@pytest.mark.parametrize(
    ("uri", "problem"),
    [
        ("s3://deep/merlot?endpoint_override=minio.shop.svc:9000", ELSEWHERE),
        ("s3://deep/merlot/shopping?endpoint_override=minio.shop.svc:9000", ELSEWHERE),
        ("s3://deep/merlot/Shop?endpoint_override=minio.shop.svc:9000", ELSEWHERE),
        ("s3://deep/merlot/shop", OTHER_HOST),
        ("s3://deep/merlot/shop?endpoint_override=evil.example:9000", OTHER_HOST),
        ("s3://deep/merlot/shop?endpoint_override=minio.shop.svc:9000&endpoint_override=evil", OTHER_HOST),
        ("s3://deep/merlot/shop?endpoint%5Foverride=evil.example", OTHER_HOST),
        ("s3://other/shop?endpoint_override=169.254.169.254", OTHER_HOST),
        ("s3://other/shop?endpoint_override=minio.shop.svc:9000", OTHER_HOST),
        ("s3://deep/merlot/shop/../other?endpoint_override=minio.shop.svc:9000", "leads up"),
        ("s3://deep/merlot/shop/%2e%2e/x", "leads up"),
        ("file:///", ELSEWHERE),
        ("file:///database", ELSEWHERE),
        ("file:///data/../etc", "leads up"),
        ("file:///data/..%2f..%2fetc", "leads up"),
        ("file:///data\\..\\etc", "characters"),
        ("file:///data/\n", "characters"),
        ("file://data/x", ELSEWHERE),
        ("/etc", WRITE),
        ("file:/data/inner", WRITE),
        ("hdfs://other:8020/merlot", ELSEWHERE),
        ("hdfs://name-node:8020/merlot?user=root", "options must be among"),
        ("hdfs://root@name-node:8020/merlot", ELSEWHERE),
        ("gs://bucket/x?endpoint_override=evil", OTHER_HOST),
        ("gs://deep/merlot/shop", ELSEWHERE),
        ("", WRITE),
    ],
)
def test_no_other_place_is_a_table_s_deep_store(uri: str, problem: str) -> None:
    with pytest.raises(InvalidInputError, match=problem):
        STORES.check(uri)


def test_who_is_refused_learns_what_is_allowed_and_what_would_allow_more() -> None:
    problem = STORES.problem_of("s3://shop/x")
    assert problem is not None
    assert OWN in problem
    assert "file:///data" in problem
    assert "--deep-store-prefix (deepStore.prefixes of the chart)" in problem


def test_without_a_deep_store_and_prefixes_no_table_has_one_of_its_own() -> None:
    nothing = AllowedStores(own=None)
    assert nothing.uri_of(None) is None
    assert "nothing is" in str(nothing.problem_of("s3://b/x"))


@pytest.mark.parametrize("uri", ["s3://KEY:hush@bucket/x", "s3://bucket/x?secret_key=hush", "hdfs://u:hush@h/x"])
def test_no_process_starts_with_a_secret_in_a_uri(uri: str) -> None:
    for stores in ({"own": uri}, {"own": None, "prefixes": (uri,)}):
        with pytest.raises(InvalidInputError, match=r"must not hold") as refused:
            AllowedStores(**stores)  # type: ignore[arg-type]
        assert "hush" not in str(refused.value)


SOURCES = AllowedSources(stores=STORES, prefixes=("file:///incoming", "s3://lake?endpoint_override=lake:9000"))


@pytest.mark.parametrize(
    "uri",
    [
        "s3://any/flights/*.parquet",
        "s3a://any/{2013,2014}/*.parquet",
        "gs://any/x.csv",
        "gs://anonymous@any/x.csv",
        "abfss://container@account.dfs.core.windows.net/{2013,2014}/*.parquet",
        "abfss://c@account.dfs.core.windows.net/x.csv?endpoint_override=minio.shop.svc:9000&scheme=http",
        "s3://any/year=201?/x.csv",
        "s3://any/a?b=c/x.csv?region=eu-west-1",
        "s3://any/x.csv?endpoint_override=minio.shop.svc:9000",
        "s3://lake/x.csv?endpoint_override=lake:9000",
        "file:///incoming/*.csv",
        "/incoming/[a-z]/x?.csv",
    ],
)
def test_batches_read_object_storage_and_what_is_below_the_prefixes(uri: str) -> None:
    assert SOURCES.problem_of(uri) is None


@pytest.mark.parametrize(
    ("uri", "problem"),
    [
        ("s3://any/x.csv?endpoint_override=169.254.169.254", OTHER_HOST),
        ("s3://any/x.csv?endpoint_override=lake:9000", OTHER_HOST),
        ("gs://any/x.csv?endpoint_override=evil.example", OTHER_HOST),
        ("file:///etc/passwd", ELSEWHERE),
        ("/etc/passwd", ELSEWHERE),
        ("file:///data/x.mseg", ELSEWHERE),
        ("s3://any/x?.csv?endpoint_override=evil", OTHER_HOST),
        ("s3://any/x.csv?endpoint_override=evil&endpoint_override=minio.shop.svc:9000", OTHER_HOST),
        ("s3://any/x.csv?secret_key=hush", "must not hold"),
        ("s3://any/x.csv?region=x@evil.example/", "the option region has a value that is none"),
        ("s3://evil.example#/x.csv", "names no bucket"),
        ("s3://evil.example:80/x.csv", "names no bucket"),
        ("s3:///x.csv", "names no bucket"),
        ("incoming/x.csv", "a path from / on"),
        ("file:/incoming/x.csv", "a path from / on"),
        ("file:///incoming/../etc/passwd", "leads up"),
        ("file:///incoming/x?/../../etc/passwd", "leads up"),
        ("/incoming/*/../../etc/passwd", "leads up"),
        ("file:///incoming/{x,/etc}/passwd", "without braces and commas"),
        ("/incoming/x,/etc/passwd", "without braces and commas"),
        ("http://169.254.169.254/latest/meta-data", ELSEWHERE),
        ("hdfs://name-node:8020/merlot/x", ELSEWHERE),
        ("abfss://container@account.evil.example/x", NO_AZURE),
        ("abfss://container@account.dfs.core.windows.net.evil.example/x", NO_AZURE),
        ("abfss://container@evil.example?.dfs.core.windows.net/x", NO_AZURE),
        ("abfss://account.dfs.core.windows.net/x", NO_AZURE),
        ("abfss://c@account.dfs.core.windows.net/x.csv?endpoint_override=evil.example", OTHER_HOST),
        ("ftp://evil/x", ELSEWHERE),
        ("jar:file:///etc/x!/y", ELSEWHERE),
        ("viewfs:///etc", ELSEWHERE),
    ],
)
def test_batches_read_nothing_else(uri: str, problem: str) -> None:
    assert problem in str(SOURCES.problem_of(uri))
