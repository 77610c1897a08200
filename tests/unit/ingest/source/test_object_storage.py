"""Sources in object storage: listed, read and refused by real requests to an emulator of each provider."""

import pytest
from tests.storage_emulators import Emulator

from merlot.errors import InvalidInputError, NotFoundError
from merlot.ingest.source import locations, plan, reader
from merlot.ingest.source.listed_files import ChangedError
from merlot.spec.ingestion import BatchIngestion
from merlot.spec.schema import TableSchema
from merlot.spec.table import TableSpec

SPEC = TableSpec(
    table_schema=TableSchema.model_validate({"fields": [{"name": "a", "type": "INT"}, {"name": "k", "type": "STRING"}]})
)
FILES = {"t/k=x/1.csv": b"a\n1\n", "t/k=y/2.csv": b"a\n2\n", "t/_SUCCESS": b"", "u/3.csv": b"a\n3\n"}
Row = tuple[str, str | None]


@pytest.fixture(params=["gcs", "azure"])
def storage(request: pytest.FixtureRequest) -> Emulator:
    emulator: Emulator = request.getfixturevalue(request.param)
    for path, body in {
        "t/k=x/1.csv": b"a\n1\n",
        "t/k=y/2.csv": b"a\n2\n",
        "t/_SUCCESS": b"",
        "u/3.csv": b"a\n3\n",
    }.items():
        emulator.put(path, body)
    return emulator


def planned(uri: str) -> plan.SourcePlan:
    return plan.make(BatchIngestion.model_validate({"sourceUri": uri, "format": "CSV"}), SPEC)


def rows_of(found: plan.SourcePlan) -> list[Row]:
    return [(row["a"], row.get("k")) for table in reader.read(found.request, found.pieces) for row in table.to_pylist()]


@pytest.mark.parametrize(
    ("path", "rows"),
    [
        ("t", [("1", "x"), ("2", "y")]),
        ("t/", [("1", "x"), ("2", "y")]),
        ("t/*/*.csv", [("1", "x"), ("2", "y")]),
        ("t/k=x/1.csv", [("1", None)]),
        ("{t,u}/*/?.csv", [("1", "x"), ("2", "y")]),
    ],
)
def test_a_source_is_a_file_a_folder_or_a_glob(storage: Emulator, path: str, rows: list[Row]) -> None:
    assert sorted(rows_of(planned(storage.uri(path)))) == rows


def test_a_source_without_files_is_not_found(storage: Emulator) -> None:
    for path in ("none", "t/*.parquet"):
        with pytest.raises(NotFoundError, match="no source files"):
            locations.list_files(storage.uri(path))


def test_a_file_that_changes_or_goes_while_the_job_runs_ends_it(storage: Emulator) -> None:
    storage.put("v/1.csv", b"a\n1\n")
    found = planned(storage.uri("v"))
    storage.put("v/1.csv", b"a\n1\n2\n")
    with pytest.raises(ChangedError, match="changed while the job ran"):
        rows_of(found)
    storage.filesystem.delete_file(f"{storage.bucket}/v/1.csv")
    with pytest.raises(ChangedError, match="was deleted"):
        rows_of(found)


def test_refused_credentials_are_the_owners_to_mend_and_are_not_shown(
    azure: Emulator, monkeypatch: pytest.MonkeyPatch
) -> None:
    azure.put("w/1.csv", b"a\n1\n")
    found = planned(azure.uri("w"))
    monkeypatch.delenv("AZURE_STORAGE_KEY")
    monkeypatch.setenv("AZURE_STORAGE_SAS_TOKEN", "sv=2020-01-01&ss=b&srt=sco&sp=rl&sig=hush%3D")
    with pytest.raises(
        InvalidInputError, match=r"cannot list source .* the job's credentials may not read it"
    ) as listing:
        locations.list_files(azure.uri("w"))
    with pytest.raises(InvalidInputError, match="the job's credentials may not read it") as reading:
        rows_of(found)
    assert "hush" not in f"{listing.value}{reading.value}"
