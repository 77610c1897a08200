"""A scheme is one row: whatever names schemes agrees with the table."""

import ast
import json
import re
from pathlib import Path

import pyarrow.fs
import pytest
import yaml

from merlot import schemes
from merlot.errors import InvalidInputError
from merlot.schemes import SCHEMES, Scheme
from merlot.spec.rules.pods import RESERVED_VARIABLES
from merlot.spec.rules.rule import violations
from merlot.spec.rules.table import RULES
from merlot.spec.tenancy import DeepStoreSpec
from merlot.store import credentials
from merlot.store.allowed import AllowedSources, AllowedStores
from merlot.store.filesystems import FileSystemUse, open_filesystem
from merlot.uris import credentials_problem, option_problems, place_of, redact

ROOT = Path(__file__).resolve().parents[2]
OPENERS = {*(row.filesystem for row in SCHEMES if row.name != "file"), "from_uri"}
DOORS = {"store/filesystems.py"}
NAMES = [name for row in SCHEMES for name in (row.name, *row.aliases)]
ENDPOINT = "endpoint_override=127.0.0.1:1&scheme=http"
by_name = pytest.mark.parametrize("row", SCHEMES, ids=lambda row: row.name)


@by_name
def test_the_example_of_a_scheme_is_a_place_of_it(row: Scheme) -> None:
    place = place_of(row.example)
    assert place.scheme == row.name
    assert place.parts == ("path",)
    assert row.authority.fullmatch(place.authority)
    assert credentials_problem(row.example) is None
    assert redact(row.example) == row.example
    assert option_problems(row.example) == []


@by_name
def test_a_scheme_is_a_deep_store_everywhere_or_nowhere(row: Scheme) -> None:
    assert DeepStoreSpec.model_validate({"uri": row.example}).uri == row.example
    refused = [one.field for one in violations(RULES, {"spec": {"deepStore": {"uri": row.example}}})]
    assert ("spec.deepStore.uri" in refused) != row.is_deep_store
    if not row.is_deep_store:
        with pytest.raises(InvalidInputError, match=f"{row.name}:// is for sources alone"):
            open_filesystem(row.example, FileSystemUse.DEEP_STORE)


def test_crds_and_chart_accept_the_deep_stores_of_the_table() -> None:
    names = [row.name for row in schemes.DEEP_STORES]
    rules = json.dumps(yaml.safe_load((ROOT / "crds" / "table.yaml").read_text()))
    tests = [f"self.deepStore.uri.startsWith('{name}://')" for name in names]
    assert f"!has(self.deepStore) || {' || '.join(tests)}" in rules
    chart = json.loads((ROOT / "charts" / "merlot" / "values.schema.json").read_text())
    assert chart["properties"]["deepStore"]["properties"]["uri"]["pattern"] == f"^$|^({'|'.join(names)})://"
    assert f"^({'|'.join(schemes.SECRET_USERS)})://" in chart["definitions"]["credentials"]["pattern"]


@by_name
def test_tables_name_object_storage_as_a_source_and_nothing_else_unless_it_was_allowed(row: Scheme) -> None:
    sources = AllowedSources(stores=AllowedStores(own=None))
    assert (sources.problem_of(row.example) is None) == row.is_object_storage
    assert AllowedSources(stores=AllowedStores(own=None), prefixes=(row.example,)).problem_of(row.example) is None
    elsewhere = f"{row.example}?endpoint_override=169.254.169.254"
    assert sources.problem_of(elsewhere) is not None


@by_name
def test_a_store_takes_a_secret_if_the_table_says_which_keys(row: Scheme, tmp_path: Path) -> None:
    assert credentials.keys_of(row.example) is row.secret
    if row.secret is None:
        with pytest.raises(InvalidInputError, match=f"{row.name}:// takes no Secret"):
            credentials.options_of(row.example, tmp_path)


@by_name
def test_variables_with_credentials_are_not_for_a_table_to_set(row: Scheme) -> None:
    for prefix in row.environment:
        assert re.match(RESERVED_VARIABLES, f"{prefix}ANYTHING")
    assert row.secret is None or row.secret.prefix in row.environment


@by_name
def test_pyarrow_takes_the_options_of_a_scheme(row: Scheme, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    assert hasattr(pyarrow.fs, row.filesystem)
    if row.options is None:
        return
    query = f"?{ENDPOINT}" if row.options else ""
    for use in FileSystemUse if row.is_deep_store else [FileSystemUse.SOURCE]:
        opened, path = open_filesystem(row.example + query, use)
        assert isinstance(opened, getattr(pyarrow.fs, row.filesystem))
        assert path.endswith("/path")
        assert path.split("/")[0] in row.example.partition("://")[2]


@by_name
def test_unknown_options_and_values_that_lead_elsewhere_are_refused(row: Scheme) -> None:
    if row.options is None:
        return
    for option in ("regoin=eu", *(f"{name}=evil.example%2F..%2F@x" for name in row.options)):
        uri = f"{row.example}?{option}"
        assert option_problems(uri)
        for use in (use for use in FileSystemUse if use is FileSystemUse.DEEP_STORE or row.is_object_storage):
            with pytest.raises(InvalidInputError):
                open_filesystem(uri, use)


@pytest.mark.parametrize("use", FileSystemUse)
def test_hdfs_without_a_hadoop_client_is_a_clear_error(use: FileSystemUse) -> None:
    with pytest.raises(InvalidInputError, match=f"cannot open {use} uri=hdfs://127.0.0.1:1/x reason=."):
        open_filesystem("hdfs://127.0.0.1:1/x", use)


@pytest.mark.parametrize("use", FileSystemUse)
@pytest.mark.parametrize("name", NAMES)
def test_no_error_repeats_credentials(name: str, use: FileSystemUse) -> None:
    for uri in (f"{name}://user:hush@host/x", f"{name}://host/x?secret_key=hush", f"{name}://host/x?sig=hush&a=b"):
        with pytest.raises(InvalidInputError, match="must not hold") as refused:
            open_filesystem(uri, use)
        assert "hush" not in str(refused.value)


@pytest.mark.parametrize(
    ("environment", "given"),
    [
        ({"AZURE_STORAGE_KEY": "a2V5"}, {}),
        ({"AZURE_STORAGE_ACCOUNT": "other", "AZURE_STORAGE_KEY": "a2V5"}, {}),
        ({"AZURE_STORAGE_ACCOUNT": "mine", "AZURE_STORAGE_KEY": "a2V5"}, {"account_key": "a2V5"}),
        ({"AZURE_STORAGE_ACCOUNT": "mine", "AZURE_STORAGE_SAS_TOKEN": "sv=1&sig=x"}, {"sas_token": "?sv=1&sig=x"}),
    ],
)
def test_keys_of_an_azure_account_go_to_no_other(environment: dict[str, str], given: dict[str, str]) -> None:
    [row] = (row for row in SCHEMES if row.name == "abfss")
    matched = row.authority.fullmatch("box@mine.dfs.core.usgovcloudapi.net")
    assert matched is not None
    assert row.target is not None
    target = row.target(matched, {}, environment)
    assert target.root == "box"
    assert target.keywords == {
        "account_name": "mine",
        "blob_storage_authority": ".blob.core.usgovcloudapi.net",
        "dfs_storage_authority": ".dfs.core.usgovcloudapi.net",
        **given,
    }


def test_file_systems_are_opened_behind_one_door() -> None:
    packages = (ROOT / "runtime" / "merlot", ROOT / "operator" / "merlot_operator", ROOT / "spark" / "merlot_spark")
    opening = set()
    for package in packages:
        for path in package.rglob("*.py"):
            text = path.read_text()
            nodes = ast.walk(ast.parse(text)) if any(name in text for name in OPENERS) else ()
            if {node.attr for node in nodes if isinstance(node, ast.Attribute)} & OPENERS:
                opening.add(str(path.relative_to(package)))
    assert opening == DOORS


def test_the_pages_name_every_scheme() -> None:
    page = (ROOT / "docs" / "ingestion.md").read_text()
    assert [row.name for row in SCHEMES if f"`{row.example}`" not in page] == []
