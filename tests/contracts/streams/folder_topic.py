"""A folder of files as a topic that a test writes to."""

from collections.abc import Sequence
from pathlib import Path

from merlot.streams.files import FilesStream
from merlot.streams.protocol import StreamClient, StreamSettings


def stream_of(folder: Path) -> FilesStream:
    return FilesStream(StreamSettings(topic=str(folder), properties={}))


class Folder:
    num_partitions = 2
    largest = 20 << 20

    def __init__(self, root: Path) -> None:
        self._root = root
        for partition in (0, 1):
            (root / str(partition)).mkdir(parents=True)
        self.stream = stream_of(root)

    def write(self, partition: int, values: Sequence[bytes]) -> None:
        with (self._root / str(partition) / "lines.jsonl").open("ab") as file:
            file.writelines(value + b"\n" for value in values)

    def missing(self) -> StreamClient:
        return stream_of(self._root / "missing")
