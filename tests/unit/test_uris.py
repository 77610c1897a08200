"""URIs of files: one spelling to compare by, and no secret of theirs is shown."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from merlot.uris import canonical, credentials_problem, http_url, parts_below, place_of, redact

SECRETS = [
    "s3://KEY:hush@bucket/x",
    "s3://hush@bucket/x",
    "s3://KEY:hu/sh@bucket/x",
    "hdfs://user:hush@host:8020/x",
    "http://user:1234@host/x",
    "s3://bucket/x?region=eu&secret_key=hush",
    "s3://bucket/x?access_key=hush",
    "s3://bucket/x?session%5Ftoken=hush&region=eu",
    "s3://bucket/x?SecretKey=hush",
    "abfs://c@a.dfs.core.windows.net/x?account_key=hush",
    "https://bucket.s3.amazonaws.com/x?X-Amz-Signature=hush&X-Amz-Credential=hush",
    "gs://bucket/x?password=hush",
]
HARMLESS = [
    "s3://bucket/flights_OFFLINE/flights_0@123.mseg",
    "s3://bucket/x?region=eu-west-1&endpoint_override=minio:9000&scheme=http",
    "hdfs://user@name-node:8020/x",
    "hdfs://name-node:8020/flights_0@123.mseg",
    "abfs://container@account.dfs.core.windows.net/x",
    "gs://anonymous@bucket/x",
    "file:///data/x",
    "/data/x",
]


def test_a_node_with_an_address_of_ipv6_has_a_url_with_brackets() -> None:
    assert [http_url(host, 8099) for host in ("fd00::1", "10.0.0.1", "broker-0.brokers")] == [
        "http://[fd00::1]:8099",
        "http://10.0.0.1:8099",
        "http://broker-0.brokers:8099",
    ]


@pytest.mark.parametrize("uri", SECRETS)
def test_secrets_of_uris_are_known_and_never_shown(uri: str) -> None:
    problem = credentials_problem(uri)
    assert problem is not None
    for text in (uri, f"cannot open uri={uri} reason='{uri}'", f'{{"uri":"{uri}","next":"a@b"}}'):
        assert "hush" not in redact(text)
        assert "hu/sh" not in redact(text)
        assert "1234" not in redact(text)
    assert "hush" not in problem
    assert redact(f'{{"uri":"{uri}","next":"a@b"}}').endswith('","next":"a@b"}')


@pytest.mark.parametrize("uri", HARMLESS)
def test_what_is_no_secret_is_shown_as_it_is(uri: str) -> None:
    assert credentials_problem(uri) is None
    assert redact(f"fetched url={uri} table=flights") == f"fetched url={uri} table=flights"


@given(st.text(max_size=60))
def test_any_text_can_be_redacted_and_redacting_twice_changes_nothing(text: str) -> None:
    once = redact(f"s3://{text}")
    assert redact(once) == once


NAMES = st.text(st.characters(categories=["L", "N", "P", "S", "Zs"], exclude_characters="/\\"), min_size=1, max_size=12)


@given(
    st.lists(NAMES, min_size=1, max_size=4), st.lists(NAMES, min_size=1, max_size=3), st.sampled_from(["s3", "hdfs"])
)
def test_what_is_below_a_folder_is_found_again_and_nothing_beside_it_is(
    folders: list[str], names: list[str], scheme: str
) -> None:
    root = f"{scheme}://host/" + "/".join(f"f{index}" for index, _ in enumerate(folders))
    url = "/".join([root, *names])
    found = parts_below(place_of(root), url)
    assert found in (tuple(names), None)
    assert parts_below(place_of(f"{root}x"), url) is None
    assert parts_below(place_of(root), "/".join([root, "..", *names])) is None
    assert canonical(url) == canonical(canonical(url)) or "%" in url
