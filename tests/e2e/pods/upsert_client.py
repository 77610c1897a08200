"""Queries all the time to an upsert table of the rows that `stream_client` produces, each with a key of its own.

`python upsert_client.py HOST PORT TABLE PARTITIONS`. A partition's rows are seen exactly once each, from its first one
on, if their count, largest and sum say so; whatever is read again must replace what is there. A line of JSON per second
tells the sums so far.
"""

import json
import sys
import threading
import time

from client import RETRIED, Client, Sums

PERIOD_S = 0.2


class Watcher:
    """Holds every answer against what a partition is."""

    def __init__(self, client: Client, table: str, num_partitions: int) -> None:
        self._client = client
        self._sql = f"SELECT part, COUNT(*), MAX(seq), SUM(seq) FROM {table} GROUP BY part ORDER BY part LIMIT 1000"
        self._num_partitions = num_partitions
        self.sums = Sums()
        self.visible = 0

    def look(self) -> None:
        """One query."""
        sums, problem = self.sums, ""
        sums.queries += 1
        try:
            try:
                rows = self._client.ask(self._sql)
            except RETRIED:
                sums.retried += 1
                self._client.forget()
                rows = self._client.ask(self._sql)
            problem = self._check(rows)
            sums.wrong += bool(problem)
        except Exception as error:  # noqa: BLE001 - whatever went wrong is a failed query
            self._client.forget()
            problem = f"failed: {type(error).__name__}: {error}"
            sums.failed += 1
        if problem and len(sums.samples) < 20:
            sums.samples.append(f"{time.strftime('%H:%M:%S')} {problem[:400]}")

    def _check(self, rows: list[list[float]]) -> str:
        """What is wrong with an answer."""
        found = {int(part): (int(count), int(largest), int(total)) for part, count, largest, total in rows}
        for partition, (count, largest, total) in found.items():
            if largest != count - 1 or total != count * (count - 1) // 2 or partition >= self._num_partitions:
                return f"partition {partition}: {count} rows, largest {largest}, sum {total}"
        self.visible = sum(count for count, _, _ in found.values())
        return ""


def main() -> None:
    host, port, table, partitions = sys.argv[1], int(sys.argv[2]), sys.argv[3], int(sys.argv[4])
    watcher = Watcher(Client(host, port, Sums(), threading.Lock()), table, partitions)
    tell_at = time.monotonic()
    while True:
        started = time.monotonic()
        watcher.look()
        if time.monotonic() >= tell_at:
            told = {**vars(watcher.sums), "t": round(time.time(), 1), "visible": watcher.visible}
            print(json.dumps(told), flush=True)
            tell_at = time.monotonic() + 1
        time.sleep(max(0.0, PERIOD_S - (time.monotonic() - started)))


if __name__ == "__main__":
    main()
