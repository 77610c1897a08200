"""An S3 server with a bucket for segments, and one that holds the flights of 2013 as Parquet files, one per month.

Runs in a pod out of the image `e2e`; ready when /tmp/ready is there.
"""

import logging
import os
import threading
from pathlib import Path

import pyarrow.compute as pc
import pyarrow.parquet as pq
from moto.server import ThreadedMotoServer
from pyarrow import fs

from merlot_spark.quickstart_data import read_flights

PORT = 5000
BUCKETS = ("deep", "sources")


def put_flights(store: fs.S3FileSystem) -> None:
    """`sources/flights/2013-MM.parquet`, by the month of departure in New York."""
    flights = read_flights()
    for month in range(1, 13):
        with store.open_output_stream(f"sources/flights/2013-{month:02}.parquet") as stream:
            pq.write_table(flights.filter(pc.equal(flights["month"], month)), stream)


def main() -> None:
    logging.getLogger("werkzeug").setLevel(logging.WARNING)
    os.environ.setdefault("AWS_ACCESS_KEY_ID", "test")
    os.environ.setdefault("AWS_SECRET_ACCESS_KEY", "test")
    ThreadedMotoServer("0.0.0.0", PORT, verbose=False).start()
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
