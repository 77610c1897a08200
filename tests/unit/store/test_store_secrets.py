"""Deep stores with Secrets of their own: each is asked with its own keys, as they are now."""

import json
from pathlib import Path

import pytest
from tests.support.faulty_s3 import FaultyS3

from merlot.errors import InvalidInputError, UnavailableError
from merlot.ids import TableName
from merlot.store import credentials
from merlot.store.deepstore import DeepStore
from merlot.store.retry import RetryPolicy

QUICK = RetryPolicy(attempts=1, first_wait=0.001)
TABLE = TableName("t_OFFLINE")


def secret(folder: Path, **keys: str) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    for name, value in keys.items():
        (folder / name).write_text(value + "\n")
    return folder


def keys(name: str) -> dict[str, str]:
    return {"AWS_ACCESS_KEY_ID": name, "AWS_SECRET_ACCESS_KEY": "x"}


@pytest.fixture
def stores(s3: FaultyS3, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, DeepStore]:
    """Three buckets: two with a Secret each, one with the environment's keys."""
    uris = {name: s3.uri(f"bucket-{name}") for name in ("one", "two", "plain")}
    folders = {
        credentials.without_options(uris[name]): str(secret(tmp_path / name, **keys(f"KEY{name}")))
        for name in ("one", "two")
    }
    monkeypatch.setenv(credentials.VARIABLE, json.dumps(folders))
    s3.keys.clear()
    return {name: DeepStore(uri, retry=QUICK) for name, uri in uris.items()}


def test_each_store_is_asked_with_its_own_keys_and_as_they_are_now(
    stores: dict[str, DeepStore], s3: FaultyS3, tmp_path: Path
) -> None:
    for store in stores.values():
        assert store.list(TABLE) == []
    asked = {path.rpartition("-")[2]: sorted(found) for path, found in s3.keys.items() if "bucket-" in path}
    assert (asked["one"], asked["two"]) == (["KEYone"], ["KEYtwo"])
    assert not {"KEYone", "KEYtwo"} & set(asked["plain"])
    s3.revoked.add("KEYone")
    with pytest.raises(UnavailableError, match="deep store failed action=list"):
        stores["one"].list(TABLE)
    assert stores["two"].list(TABLE) == []
    secret(tmp_path / "one", **keys("KEYnew"))
    assert stores["one"].list(TABLE) == []
    s3.revoked.clear()


def test_a_secret_that_is_not_there_is_waited_for_by_its_store_alone(
    stores: dict[str, DeepStore], tmp_path: Path
) -> None:
    for path in (tmp_path / "one").iterdir():
        path.unlink()
    with pytest.raises(UnavailableError, match=r"Secret is not there, or empty secret=one"):
        stores["one"].list(TABLE)
    assert stores["two"].list(TABLE) == []


@pytest.mark.parametrize(
    ("found", "problem"),
    [
        ({**keys("k"), "AWS_CA_BUNDLE": "x"}, "unknown keys .*AWS_CA_BUNDLE"),
        ({"AWS_ACCESS_KEY_ID": "k"}, "belong together"),
        ({"AWS_ENDPOINT_URL": "http://evil.example"}, "brings its own keys"),
    ],
)
def test_keys_that_nothing_can_be_done_with_are_refused(found: dict[str, str], problem: str, tmp_path: Path) -> None:
    with pytest.raises(InvalidInputError, match=problem):
        credentials.options_of("s3://b", secret(tmp_path / "s", **found))


def test_a_secret_may_say_where_its_store_is(tmp_path: Path) -> None:
    (tmp_path / "s" / "..data").mkdir(parents=True)
    more = {"AWS_REGION": "eu-west-1", "AWS_ENDPOINT_URL": "https://minio:9000", "note": "ours"}
    assert credentials.options_of("s3://b", secret(tmp_path / "s", **keys("k"), **more)) == {
        "access_key": "k",
        "secret_key": "x",
        "region": "eu-west-1",
        "endpoint_override": "minio:9000",
        "scheme": "https",
    }


def test_a_store_that_takes_no_secret_refuses_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(credentials.VARIABLE, json.dumps({"file:///d": "/etc/s"}))
    with pytest.raises(InvalidInputError, match="file:// takes no Secret"):
        DeepStore("file:///d")
