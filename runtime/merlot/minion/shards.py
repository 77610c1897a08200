"""Files that the shards of one large bucket share, in the deep store under `{table}/.shuffle/{entry}/{shuffle}/`.

`{shard}.mseg` holds the rows of a shard, `{shard}.json` the records of its outputs once these are uploaded. Each file
is uploaded whole, and always with the same content, so any number of runs may work at the same time. Each shuffle has a
directory of its own: if a minion wakes after the bucket was taken back and shuffled again, nobody reads what it
writes.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

from pydantic import TypeAdapter, ValidationError

from merlot.cluster.records import SegmentRecord
from merlot.cluster.tasks.records import SHUFFLE_FOLDER
from merlot.errors import CorruptionError, NotFoundError
from merlot.ids import TableName
from merlot.minion.control import TaskControl
from merlot.segment.immutable import verify_file
from merlot.store.deepstore import DeepStore

_RECORDS: Final = TypeAdapter(list[SegmentRecord])


def _records_of(text: bytes, shard: int) -> list[SegmentRecord]:
    try:
        return _RECORDS.validate_json(text)
    except ValidationError as error:
        raise CorruptionError(f"outputs of a shard cannot be read shard={shard}") from error


class ShardFiles:
    """Files of the shards of one shuffle."""

    def __init__(self, store: DeepStore, table: TableName, entry: str, shuffle: str) -> None:
        self._store = store
        self._base = store.url_below(table, SHUFFLE_FOLDER, entry, shuffle)

    def put_inputs(self, files: Sequence[Path], control: TaskControl) -> None:
        """Upload the rows of every shard."""
        num_bytes = 0
        for shard, path in enumerate(files):
            control.check()
            self._store.put(path, self._input_url(shard))
            num_bytes += path.stat().st_size
            control.tell("UPLOAD", num_bytes=num_bytes)
            control.reached("shard uploaded")

    def fetch_input(self, shard: int, folder: Path) -> Path:
        """Download the rows of one shard; raise NotFoundError if they are gone."""
        path = folder / f"shard-{shard}.mseg"
        self._store.fetch(self._input_url(shard), path, verify=verify_file)
        return path

    def put_outputs(self, shard: int, records: Sequence[SegmentRecord]) -> None:
        """Record that a shard is merged, and its outputs."""
        rows = [record.model_dump(mode="json", by_alias=True, exclude_defaults=True) for record in records]
        with TemporaryDirectory(prefix="merlot-shard-") as folder:
            path = Path(folder) / "outputs.json"
            path.write_text(json.dumps(rows))
            self._store.put(path, self._output_url(shard))

    def outputs_of(self, shard: int) -> list[SegmentRecord] | None:
        """Return the outputs of a merged shard; None if it is not merged or an output's file is gone."""
        with TemporaryDirectory(prefix="merlot-shard-") as folder:
            path = Path(folder) / "outputs.json"
            try:
                self._store.fetch(self._output_url(shard), path)
            except NotFoundError:
                return None
            records = _records_of(path.read_bytes(), shard)
        is_there = all(self._store.modified_ms(record.url) is not None for record in records)
        return records if is_there else None

    def all_outputs(self, num_shards: int) -> list[SegmentRecord] | None:
        """Return the outputs of all shards; None while a shard is not merged."""
        if any(self._store.modified_ms(self._output_url(shard)) is None for shard in range(num_shards)):
            return None
        outputs = [self.outputs_of(shard) for shard in range(num_shards)]
        return None if None in outputs else [record for records in outputs if records is not None for record in records]

    def forget_outputs(self, shard: int) -> None:
        """Have the shard merged again, because its outputs will be deleted."""
        self._store.delete(self._output_url(shard))

    def remove(self, shards: Iterable[int]) -> None:
        """Delete the files of shards, if they exist."""
        for shard in shards:
            self._store.delete(self._input_url(shard))
            self._store.delete(self._output_url(shard))

    def _input_url(self, shard: int) -> str:
        return f"{self._base}/{shard}.mseg"

    def _output_url(self, shard: int) -> str:
        return f"{self._base}/{shard}.json"
