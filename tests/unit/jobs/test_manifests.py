"""What a job is told of its manifest and its controller before Spark starts."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.support.apps import serve_app
from tests.unit.spec import shapes

from merlot.cluster.manifests.tables import put_table
from merlot.controller.allowed_places import AllowedPlaces
from merlot.controller.http.api import make_app
from merlot.controller.service import ControllerService
from merlot.metastore.sqlite import SqliteMetastore
from merlot.spec import manifest
from merlot.store.allowed import AllowedStores
from merlot_spark import build_job

SOURCE = ("--source", "rows.csv", "--format", "csv")


@pytest.fixture
def controller(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """URL of a controller that has the table. Whoever starts Spark has gone too far."""

    def fail(*_: object, **__: object) -> None:
        raise AssertionError("Spark was started")

    monkeypatch.setattr(build_job, "create_session", fail)
    metastore = SqliteMetastore(tmp_path / "state.sqlite")
    put_table(metastore, shapes.table())
    stores = AllowedStores(own=str(tmp_path / "deep"))
    with serve_app(make_app(ControllerService(metastore, places=AllowedPlaces(stores)))) as url:
        yield url
    metastore.close()


def run(tmp_path: Path, *arguments: str) -> tuple[int, str]:
    """Exit code and error of a job."""
    report = tmp_path / "report"
    code = build_job.main([*arguments, "--report", str(report)])
    return code, json.loads(report.read_text())["error"]


@pytest.mark.parametrize("case", shapes.DIFFERENT, ids=lambda case: case.path)
def test_a_manifest_that_differs_is_refused_by_name_of_the_field(
    controller: str, tmp_path: Path, case: shapes.Case
) -> None:
    (tmp_path / "t.yaml").write_text(json.dumps(manifest.dump(shapes.table(*case.edits))))
    code, error = run(tmp_path, *SOURCE, "--controller", controller, "--table", str(tmp_path / "t.yaml"))
    assert (code, case.path in error) == (build_job.EXIT_WRONG_INPUT, True), error


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (["--name", "other"], build_job.EXIT_FAILED, "table does not exist table=other"),
        (["--name", "trips", "--deep-store", "/elsewhere"], build_job.EXIT_WRONG_INPUT, "in another deep store"),
        (["--name", "trips", "--from-ms", "6"], build_job.EXIT_WRONG_INPUT, "a window that cuts a UTC day"),
        ([], build_job.EXIT_WRONG_INPUT, "no table; give its manifest with --table, or --controller and its --name"),
    ],
)
def test_what_cannot_be_published_is_not_built(
    controller: str, tmp_path: Path, arguments: list[str], code: int, message: str
) -> None:
    found, error = run(tmp_path, *SOURCE, "--controller", controller, *arguments)
    assert (found, message in error) == (code, True), error


@pytest.mark.parametrize("option", ["--from-ms", "--to-ms"])
def test_a_time_of_more_than_64_bits_is_wrong_usage(option: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as end:
        build_job.main([*SOURCE, option, str(2**63)])
    assert end.value.code == build_job.EXIT_WRONG_INPUT
    assert f"argument {option}: no time in epoch milliseconds: {2**63}" in capsys.readouterr().err
    assert build_job._parser().parse_args([option, str(2**63 - 1)])


def test_a_job_that_needs_no_manifest_takes_table_and_deep_store_from_the_controller(
    controller: str, tmp_path: Path
) -> None:
    chosen = build_job._parser().parse_args([*SOURCE, "--controller", controller, "--name", "trips"])
    declared, applied = build_job._tables(chosen)
    assert applied is not None
    assert declared == applied.table == shapes.table()
    assert build_job._deep_store(declared, applied, None) == str(tmp_path / "deep")
