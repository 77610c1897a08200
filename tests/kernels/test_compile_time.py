"""Seconds with a compiler: who waits for code has as long for the rest as without."""

import asyncio
import threading
import time

import pytest

from merlot.errors import UnavailableError
from merlot.kernels import compile_time
from merlot.query.context import CancelToken, QueryTimeoutError
from merlot.wire.client import LocalChannel
from merlot.wire.messages import ServerRequest, ServerResponse

SLOW_S = 0.3


def compile_slowly() -> None:
    with compile_time.counted():
        time.sleep(SLOW_S)


def test_threads_that_wait_at_once_count_once() -> None:
    before = compile_time.seconds()
    started = time.monotonic()
    threads = [threading.Thread(target=compile_slowly) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert SLOW_S <= compile_time.seconds() - before <= time.monotonic() - started


def test_seconds_are_seen_while_they_pass() -> None:
    before = compile_time.seconds()
    with compile_time.counted():
        time.sleep(0.01)
        assert compile_time.seconds() > before


def test_seconds_do_not_decrease_while_a_block_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    before = compile_time.seconds()
    monotonic, seen = time.monotonic, []

    def slow_clock() -> float:
        if not seen and threading.current_thread() is threading.main_thread():
            reader = threading.Thread(target=lambda: seen.append(compile_time.seconds()))
            readers.append(reader)
            reader.start()
            reader.join(0.1)
        return monotonic() + 1

    readers: list[threading.Thread] = []
    with compile_time.counted():
        monkeypatch.setattr(time, "monotonic", slow_clock)
    monkeypatch.undo()
    readers[0].join()
    assert seen[0] - before >= 1


def test_a_compiler_that_never_ends_counts_for_a_bounded_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compile_time, "LONGEST_S", 0.1)
    before = compile_time.seconds()
    compile_slowly()
    assert compile_time.seconds() - before == pytest.approx(0.1)


def test_a_query_does_not_pass_its_deadline_by_compiling() -> None:
    token = CancelToken.after(SLOW_S / 2)
    compile_slowly()
    token.check()
    time.sleep(SLOW_S)
    with pytest.raises(QueryTimeoutError):
        token.check()


def test_a_broker_waits_longer_for_a_server_in_its_process_that_compiles() -> None:
    answer = ServerResponse()

    async def handle(_: ServerRequest) -> ServerResponse:
        await asyncio.to_thread(compile_slowly)
        return answer

    assert asyncio.run(asked(handle)) is answer


def test_a_broker_gives_up_on_a_server_in_its_process_that_does_anything_else() -> None:
    async def handle(_: ServerRequest) -> ServerResponse:
        await asyncio.to_thread(compile_slowly)
        await asyncio.Event().wait()
        raise AssertionError

    with pytest.raises(UnavailableError, match="did not answer in time"):
        asyncio.run(asked(handle))


async def asked(handle) -> ServerResponse:  # type: ignore[no-untyped-def]
    request = ServerRequest(request_id="1", table="t", query=b"", where=b"", segments=(), timeout_ms=1)
    return await LocalChannel(handle).execute(request, SLOW_S / 3)
