"""What is judged and what is opened are read by different programs: what one allows, the other finds where it said."""

import os
from pathlib import Path

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from tests.budget import examples

from merlot.errors import MerlotError
from merlot.ids import TableName
from merlot.ingest.source.locations import list_files
from merlot.store.allowed import AllowedSources, AllowedStores
from merlot.store.deepstore import DeepStore
from merlot.store.retry import RetryPolicy

FRAGMENTS = (
    *(
        "/",
        "/",
        "/",
        "..",
        ".",
        "a",
        "b.csv",
        "allowed",
        "secret",
        "*",
        "**",
        "?",
        "[.]",
        "[a-z]*",
        "{",
        "}",
        ",",
        "\\",
    ),
    *(
        "%2e",
        "%2E%2e",
        "%2f",
        "%5c",
        "%252e%252e",
        "%3f",
        "%2a",
        "%7b",
        "#",
        "?x=y",
        "&",
        ";",
        ":",
        "@",
        "~",
        " ",
        "\t",
    ),
)
TAILS = st.lists(st.sampled_from(FRAGMENTS), max_size=9).map("".join)
HEADS = st.sampled_from(("file://", "FILE://", "file:", "", "file://localhost", "file:///"))
PATIENT = settings(
    max_examples=examples(400), deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)


@pytest.fixture
def allowed(tmp_path: Path) -> Path:
    """A folder with files, beside another one and a file."""
    for path in ("allowed/a/b.csv", "allowed/b.csv", "secret/b.csv", "secret.csv", "allowedsecret/b.csv"):
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).write_text("a\n")
    return tmp_path / "allowed"


@PATIENT
@given(head=HEADS, tail=TAILS)
@example(head="file://", tail="/a?/../../secret/b.csv")
@example(head="", tail="/{..,a}/secret/b.csv")
@example(head="file://", tail="/*/..%2f../secret")
def test_a_source_that_is_allowed_is_found_below_its_prefix(allowed: Path, head: str, tail: str) -> None:
    sources = AllowedSources(stores=AllowedStores(own=None), prefixes=(allowed.as_uri(),))
    uri = f"{head}{allowed}{tail}"
    if sources.problem_of(uri) is not None:
        return
    try:
        found = list_files(uri)
    except MerlotError:
        return
    for one in found:
        assert Path(os.path.normpath("/" + one.path.lstrip("/"))).is_relative_to(allowed), uri


@PATIENT
@given(head=HEADS, tail=TAILS)
def test_a_deep_store_that_is_allowed_is_below_its_prefix(allowed: Path, head: str, tail: str) -> None:
    stores = AllowedStores(own=None, prefixes=(allowed.as_uri(),))
    uri = f"{head}{allowed}{tail}"
    if stores.problem_of(uri) is not None:
        return
    try:
        store = DeepStore(uri, retry=RetryPolicy(attempts=1))
        store.put(allowed / "b.csv", store.url_below(TableName("t_OFFLINE"), "mark.mseg"))
    except MerlotError:
        return
    marks = list(allowed.parent.rglob("mark.mseg"))
    assert marks, uri
    for mark in marks:
        assert mark.is_relative_to(allowed), uri
        mark.unlink()


@PATIENT
@given(tail=TAILS)
def test_no_url_of_a_store_leads_out_of_it(allowed: Path, tail: str) -> None:
    store = DeepStore(allowed.as_uri(), retry=RetryPolicy(attempts=1))
    url = f"{allowed.as_uri()}{tail}"
    try:
        content = store.read(url, lambda content: content)
    except MerlotError:
        return
    assert content == b"a\n"
    assert (allowed / tail.removeprefix("/")).resolve().is_relative_to(allowed), url
