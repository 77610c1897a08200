"""When a job that waits for servers is done, and what it says if it is not."""

from collections.abc import Iterator, Mapping
from typing import Any

import pytest

from merlot_spark import serving
from merlot_spark.build_segments import JobOptions, _waited
from merlot_spark.publish import ControllerClient
from merlot_spark.report import JobReport
from merlot_spark.serving import Served

SERVER = {"role": "SERVER"}


def status(crc: int = 1, *, visible: bool = True, **servers: str) -> dict[str, Any]:
    return {"crc": crc, "visible": visible, "servers": servers}


@pytest.mark.parametrize(
    ("statuses", "waiting"),
    [
        ({"a": status(s1="ONLINE"), "b": status(s1="LOADING", s2="ONLINE")}, []),
        ({"a": status(s1="LOADING"), "b": status(s1="ONLINE")}, ["a"]),
        ({"a": status(), "b": status(s1="OFFLINE", s2="ERROR")}, ["a", "b"]),
        ({"a": status(2), "b": status(visible=False)}, []),  # replaced by another job; merged away
        ({}, []),
    ],
)
def test_a_segment_is_served_once_one_server_has_it(statuses: Mapping[str, Any], waiting: list[str]) -> None:
    assert serving.unserved(statuses, ["a@1", "b@1"]) == waiting


class Controller(ControllerClient):
    """Answers what it is told, one look after another, the last one for ever."""

    def __init__(self, *looks: Mapping[str, Any], instances: tuple[Mapping[str, Any], ...] = (SERVER,)) -> None:
        super().__init__("http://controller")
        self._looks = _then_always(looks)
        self._instances = instances

    def get(self, path: str) -> Any:
        return {"details": self._instances} if path == "/instances" else next(self._looks)


def _then_always(looks: tuple[Mapping[str, Any], ...]) -> Iterator[Mapping[str, Any]]:
    yield from looks
    while True:
        yield looks[-1]


class Clock:
    def __init__(self) -> None:
        self.s = 0.0

    def now(self) -> float:
        return self.s

    def sleep(self, seconds: float) -> None:
        self.s += seconds


def test_a_job_waits_until_all_segments_are_served() -> None:
    clock, loading, done = Clock(), {"a": status(s="LOADING")}, {"a": status(s="ONLINE")}
    controller = Controller({"a": status()}, loading, loading, done)
    assert serving.wait(controller, "t", ["a@1"], 60, now=clock.now, sleep=clock.sleep) == Served()
    assert clock.s == pytest.approx(0.1 + 0.2 + 0.4)


def test_a_wait_ends_with_patience_or_without_servers() -> None:
    clock, loading = Clock(), {"a": status(s="LOADING")}
    found = serving.wait(Controller(loading), "t", ["a@1"], 5, now=clock.now, sleep=clock.sleep)
    assert found == Served(("a",), "not loaded within 5 s")
    assert clock.s <= 5
    found = serving.wait(Controller(loading, instances=({"role": "BROKER"},)), "t", ["a@1"], 5, sleep=clock.sleep)
    assert found == Served(("a",), "no server is live")
    report = JobReport(table="t", rows_in=1, rows_out=1, published=1, served=found)
    assert "1 segments are published and not served yet (no server is live)" in report.to_text()
    assert report.to_json()["segmentsNotServed"] == 1


class StoppedController(ControllerClient):
    """Has somebody press Ctrl-C at the first look."""

    def get(self, path: str) -> Any:
        raise KeyboardInterrupt


def test_a_wait_that_is_stopped_reports_what_was_published() -> None:
    published = JobReport(table="t", rows_in=1, rows_out=1, published=1, segments=("a@1",))
    report = _waited(published, StoppedController("http://controller"), JobOptions(wait_s=60))
    assert report.served == Served(("a",), "the wait was stopped")
    assert "1 segments are published and not served yet (the wait was stopped)" in report.to_text()
