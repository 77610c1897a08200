"""An S3 server with a bucket for segments, and one that holds the flights of 2013 as Parquet files, one per month.

Runs in a pod out of the image `e2e`; ready when /tmp/ready is there. While /tmp/slow is there, each read of a segment
takes two minutes.
"""

import logging
import os
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import pyarrow.compute as pc
import pyarrow.parquet as pq
from examples.demos.quickstart_data import read_flights
from moto.moto_server.werkzeug_app import DomainDispatcherApplication, MotoRequestHandler, create_backend_app
from pyarrow import fs
from werkzeug.serving import make_server

PORT = 5000
BUCKETS = ("deep", "sources")
QUARTER = 3
SLOW, SLOW_S = Path("/tmp/slow"), 120

Application = Callable[[dict[str, Any], Any], Iterable[bytes]]


def slowed(application: Application) -> Application:
    """Reads of segments trickle while they shall."""

    def answer(environ: dict[str, Any], start_response: Any) -> Iterable[bytes]:
        is_read = environ["REQUEST_METHOD"] == "GET" and environ["PATH_INFO"].endswith(".mseg")
        parts = application(environ, start_response)
        return trickle(b"".join(parts)) if is_read and SLOW.exists() else parts

    return answer


def trickle(body: bytes) -> Iterator[bytes]:
    """A hundred bytes twice a second, since clients give up who hear of less; the rest at once when it is over."""
    sent, until = 0, time.monotonic() + SLOW_S
    while sent < len(body) and SLOW.exists() and time.monotonic() < until:
        yield body[sent : sent + 100]
        sent += 100
        time.sleep(0.5)
    yield body[sent:]


def serve() -> None:
    """In a thread, as moto's own server does."""
    application = slowed(DomainDispatcherApplication(create_backend_app))
    server = make_server("0.0.0.0", PORT, application, threaded=True, request_handler=MotoRequestHandler)
    threading.Thread(target=server.serve_forever, daemon=True).start()


def put_flights(store: fs.S3FileSystem) -> None:
    """By month of departure: `sources/flights/2013-MM.parquet`, the first three in `sources/quarter` as well."""
    flights = read_flights()
    for month in range(1, 13):
        rows = flights.filter(pc.equal(flights["month"], month))
        for folder in ("flights", "quarter") if month <= QUARTER else ("flights",):
            with store.open_output_stream(f"sources/{folder}/2013-{month:02}.parquet") as stream:
                pq.write_table(rows, stream)


def main() -> None:
    logging.getLogger("werkzeug").setLevel(logging.WARNING)
    os.environ.setdefault("AWS_ACCESS_KEY_ID", "test")
    os.environ.setdefault("AWS_SECRET_ACCESS_KEY", "test")
    serve()
    store = fs.S3FileSystem(
        region="us-east-1", scheme="http", endpoint_override=f"127.0.0.1:{PORT}", allow_bucket_creation=True
    )
    for bucket in BUCKETS:
        store.create_dir(bucket)
    put_flights(store)
    Path("/tmp/ready").touch()
    print("ready", flush=True)
    threading.Event().wait()


if __name__ == "__main__":
    main()
