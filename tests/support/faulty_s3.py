"""S3 that fails on demand: moto behind a layer that answers 500, truncates bodies a given number of times, or hangs."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any


@dataclass
class FaultyS3:
    """Faults of the S3 server at `url`, host:port. Each fault decrements its counter."""

    url: str = ""
    failures: int = 0
    truncations: int = 0
    requests: list[str] = field(default_factory=list)
    keys: dict[str, set[str]] = field(default_factory=dict)
    """Access keys by the folder that was requested with them."""
    revoked: set[str] = field(default_factory=set)
    """Access keys that are refused."""
    answers: threading.Event = field(default_factory=threading.Event)
    """Event for which requests wait; cleared, it makes the server hang."""

    def wrap(self, app: Callable[..., Any]) -> Callable[..., Any]:
        """Wrap moto's WSGI application."""

        def faulty(environ: dict[str, Any], start_response: Callable[..., Any]) -> Any:
            self.requests.append(environ["REQUEST_METHOD"])
            self.answers.wait()
            key = environ.get("HTTP_AUTHORIZATION", "").partition("Credential=")[2].partition("/")[0]
            self.keys.setdefault("/".join(environ["PATH_INFO"].split("/")[:3]), set()).add(key)
            if key in self.revoked:
                start_response("403 Forbidden", [("Content-Length", "0")])
                return [b""]
            if self.failures:
                self.failures -= 1
                start_response("500 Internal Server Error", [("Content-Length", "0")])
                return [b""]
            body = b"".join(app(environ, start_response))
            if self.truncations and environ["REQUEST_METHOD"] == "GET":
                self.truncations -= 1
                return [body[: len(body) // 2]]
            return [body]

        return faulty

    def uri(self, bucket: str = "bucket", prefix: str = "deep") -> str:
        """Return the URI of a deep store in a bucket, which is created if it is missing. Credentials come from the
        environment."""
        from pyarrow import fs

        options = {"region": "us-east-1", "scheme": "http", "endpoint_override": self.url}
        fs.S3FileSystem(allow_bucket_creation=True, **options).create_dir(bucket)
        query = "&".join(f"{name}={value}" for name, value in options.items())
        return f"s3://{bucket}/{prefix}?{query}"


@contextlib.contextmanager
def serve_faulty_s3() -> Iterator[FaultyS3]:
    """Serve S3 while the block runs."""
    from moto.moto_server.werkzeug_app import DomainDispatcherApplication, create_backend_app
    from werkzeug.serving import make_server

    faulty = FaultyS3()
    faulty.answers.set()
    server = make_server("127.0.0.1", 0, faulty.wrap(DomainDispatcherApplication(create_backend_app)), threaded=True)
    faulty.url = f"127.0.0.1:{server.server_port}"
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield faulty
    finally:
        faulty.answers.set()
        server.shutdown()
        thread.join()
        server.server_close()
