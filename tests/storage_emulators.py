"""Emulators of object storage other than S3, for tests that have them: Google's in this process, Azure's beside it."""

from __future__ import annotations

import contextlib
import shutil
import socket
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from pyarrow import fs

from merlot.ports import free_port
from merlot.testing.patience import wait_until

ACCOUNT = "devstoreaccount1"
KEY = "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw=="
"""Azurite's own, which everybody knows."""


@dataclass(frozen=True)
class Emulator:
    """`filesystem` is how a test puts files there, without going through the code under test."""

    filesystem: fs.FileSystem
    base: str
    """URI of a bucket or container, without a path."""
    bucket: str
    query: str

    def uri(self, path: str) -> str:
        return f"{self.base}/{path}?{self.query}"

    def put(self, path: str, body: bytes) -> None:
        with self.filesystem.open_output_stream(f"{self.bucket}/{path}", compression=None) as stream:
            stream.write(body)


@contextlib.contextmanager
def serve_gcs() -> Iterator[Emulator]:
    server = pytest.importorskip("gcp_storage_emulator.server", reason="gcp-storage-emulator is not installed")
    port = free_port()
    with server.create_server("127.0.0.1", port, in_memory=True, default_bucket="bucket"):
        store = fs.GcsFileSystem(anonymous=True, endpoint_override=f"127.0.0.1:{port}", scheme="http")
        query = f"endpoint_override=127.0.0.1:{port}&scheme=http"
        yield Emulator(store, "gs://anonymous@bucket", "bucket", query)


@contextlib.contextmanager
def serve_azure(folder: Path) -> Iterator[Emulator]:
    program = shutil.which("azurite-blob")
    if program is None:
        pytest.skip("azurite-blob is not on the path: npm install --global azurite")
    port = free_port()
    process = subprocess.Popen(
        [program, "--silent", "--skipApiVersionCheck", "--blobPort", str(port), "--location", str(folder)]
    )
    try:
        wait_until(lambda: _answers(port))
        place = f"127.0.0.1:{port}"
        store = fs.AzureFileSystem(
            account_name=ACCOUNT,
            account_key=KEY,
            blob_storage_authority=place,
            dfs_storage_authority=place,
            blob_storage_scheme="http",
            dfs_storage_scheme="http",
        )
        store.create_dir("container")
        base = f"abfss://container@{ACCOUNT}.dfs.core.windows.net"
        yield Emulator(store, base, "container", f"endpoint_override={place}&scheme=http")
    finally:
        process.terminate()
        process.wait()


def _answers(port: int) -> bool:
    with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port)):
        return True
    return False
