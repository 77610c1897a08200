"""Streams are opened once for all partitions, and anew when the Secret that they are read with is another one."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import pytest

from merlot.cluster.consuming.progress import StreamProblem
from merlot.errors import MerlotError
from merlot.server.realtime.problems import problem_of
from merlot.server.realtime.secrets import read_secret
from merlot.server.realtime.stream_clients import StreamClients
from merlot.spec.stream import FlushSpec, StreamIngestion
from merlot.streams.allowed import AllowedStreams
from merlot.streams.folders import EVERY_FOLDER, AllowedFolders

EVERY = AllowedStreams(folders=EVERY_FOLDER)


def stream(folder: Path) -> StreamIngestion:
    return StreamIngestion(type="files", topic=str(folder), secret_ref="merlot-trips")


def test_a_secret_that_changes_is_read_by_the_next_reader(tmp_path: Path) -> None:
    secret = tmp_path / "merlot-trips"
    secret.mkdir()
    (secret / "sasl.password").write_text("first")
    streams = StreamClients(partial(read_secret, tmp_path), EVERY)
    declared = stream(tmp_path)
    first = streams.of(declared)
    assert streams.of(declared.model_copy(update={"flush": FlushSpec(rows=7)})) is first
    (secret / "sasl.password").write_text("second")
    second = streams.of(declared)
    assert second is not first
    assert streams.of(declared) is second
    assert streams.secrets_of(declared) == {"sasl.password": "second"}
    streams.close()


def problem(streams: StreamClients, declared: StreamIngestion) -> StreamProblem:
    with pytest.raises(MerlotError) as refused:
        streams.of(declared)
    return problem_of(refused.value)


def test_what_keeps_a_stream_from_being_opened_is_told_apart(tmp_path: Path) -> None:
    streams = StreamClients(partial(read_secret, tmp_path), AllowedStreams(()))
    assert problem(streams, stream(tmp_path)) is StreamProblem.NO_SECRET
    kafka = StreamIngestion(type="kafka", topic="t", properties={"bootstrap.servers": "evil:9092"})
    assert problem(streams, kafka) is StreamProblem.NOT_ALLOWED


def test_a_folder_that_is_not_allowed_is_refused_whatever_leads_to_it(tmp_path: Path) -> None:
    """A table that was applied before, or past the controller, is judged by the server that opens its stream."""
    incoming, secret = tmp_path / "incoming", tmp_path / "secret"
    incoming.mkdir()
    secret.mkdir()
    (incoming / "link").symlink_to(secret)
    streams = StreamClients(partial(read_secret, tmp_path), AllowedStreams(folders=AllowedFolders((str(incoming),))))
    for folder in (secret, incoming / "link", incoming / ".." / "secret", tmp_path, tmp_path / "incoming-2"):
        declared = StreamIngestion(type="files", topic=str(folder))
        assert problem(streams, declared) is StreamProblem.NOT_ALLOWED, folder
    assert streams.of(StreamIngestion(type="files", topic=str(incoming))).partitions() == [0]
    streams.close()


def test_no_folder_is_allowed_unless_the_process_was_started_with_it(tmp_path: Path) -> None:
    streams = StreamClients(partial(read_secret, tmp_path), AllowedStreams())
    assert problem(streams, StreamIngestion(type="files", topic=str(tmp_path))) is StreamProblem.NOT_ALLOWED
