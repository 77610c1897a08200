"""Small synchronous HTTP client of a node, controller or broker. Its errors say what to do next."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Any
from urllib.parse import quote, urlencode, urlsplit

import typer

from merlot.cli.errors import ApiError, CommandError, UsageError
from merlot.cli.node_tls import tls_of_command
from merlot.errors import InvalidInputError
from merlot.security import own_credentials

if TYPE_CHECKING:
    import http.client

DEFAULT_URL = "http://localhost:8099"
TIMEOUT_S = 30.0

Url = Annotated[
    str,
    typer.Option(
        "--url",
        envvar="MERLOT_URL",
        metavar="URL",
        help="Where the node, controller or broker listens.",
        show_envvar=True,
    ),
]


class NodeClient:
    """Client of one node. A call fails once the node sends nothing for `timeout_s`."""

    def __init__(self, url: str, timeout_s: float = TIMEOUT_S) -> None:
        self.url = url.rstrip("/")
        try:
            parts = urlsplit(url if "://" in url else f"http://{url}")
            self._port = parts.port
        except ValueError:
            raise UsageError(f"not a URL: {url!r}; write one like {DEFAULT_URL}") from None
        if parts.username or parts.password:
            raise UsageError("a URL holds no credentials: log in with --user, --token-file or MERLOT_TOKEN")
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise UsageError(f"not a URL: {url!r}; write one like {DEFAULT_URL}")
        self._tls = tls_of_command() if parts.scheme == "https" else None
        self._host = parts.hostname
        self._prefix = parts.path.rstrip("/")
        self._timeout_s = timeout_s

    def get(self, path: str, query: Mapping[str, str] | None = None) -> Any:
        """Return the JSON at a path; raise CommandError."""
        return self.call("GET", _with_query(path, query))

    def post(self, path: str, body: bytes, content_type: str, query: Mapping[str, str] | None = None) -> Any:
        """Send a body and return the JSON answer; raise CommandError."""
        return self.call("POST", _with_query(path, query), body, {"Content-Type": content_type})

    def post_json(self, path: str, body: Any) -> Any:
        """Send JSON and return the JSON answer; raise CommandError."""
        return self.post(path, json.dumps(body).encode(), "application/json")

    def delete(self, path: str) -> Any:
        """Delete the object at a path; raise CommandError."""
        return self.call("DELETE", path)

    def call(self, method: str, path: str, body: bytes | None = None, headers: Mapping[str, str] | None = None) -> Any:
        """Send one request and return the JSON answer; raise ApiError for a refusal, CommandError if there is no
        answer."""
        own = {"Accept": "application/json", **own_credentials.headers()}
        status, data = self._exchange(method, path, body, {**own, **(headers or {})})
        if status >= 400:
            raise _refusal(status, data, f"{self.url}{path.partition('?')[0]}")
        if not data:
            return None
        try:
            return json.loads(data)
        except ValueError:
            raise CommandError(f"{self.url} answers, but not as merlot does: check --url") from None

    def _exchange(self, method: str, path: str, body: bytes | None, headers: Mapping[str, str]) -> tuple[int, bytes]:
        import http.client
        import socket
        import ssl

        connection = self._connection()
        try:
            connection.request(method, self._prefix + path, body, dict(headers))
            response = connection.getresponse()
            return response.status, response.read()
        except TimeoutError:
            raise CommandError(
                f"no answer from {self.url} within {self._timeout_s:g} s: see its log, or try again"
            ) from None
        except ssl.SSLError as error:
            reason = getattr(error, "verify_message", None) or error.reason or error
            raise CommandError(
                f"cannot speak TLS with {self.url}: {reason}; check --url, and --ca, --cert and --key"
            ) from None
        except (ConnectionResetError, http.client.RemoteDisconnected):
            hint = "" if self._tls else "; if it speaks TLS, write https://"
            raise CommandError(f"{self.url} hung up: check --url{hint}") from None
        except (ConnectionRefusedError, socket.gaierror, OSError):
            raise CommandError(
                f"cannot reach merlot at {self.url}: start one with `merlot serve`, or pass --url"
            ) from None
        except http.client.HTTPException:
            raise CommandError(f"{self.url} answers, but not in HTTP: check --url") from None
        finally:
            connection.close()

    def _connection(self) -> http.client.HTTPConnection:
        import http.client

        if self._tls is None:
            return http.client.HTTPConnection(self._host, self._port, timeout=self._timeout_s)
        try:
            context = self._tls.context()
        except InvalidInputError as error:
            raise UsageError(str(error)) from None
        return http.client.HTTPSConnection(self._host, self._port, timeout=self._timeout_s, context=context)


def path_of(*names: str) -> str:
    """Return the path of these names, each escaped."""
    return "".join(f"/{quote(name, safe='')}" for name in names)


def _with_query(path: str, query: Mapping[str, str] | None) -> str:
    return f"{path}?{urlencode(query)}" if query else path


def _refusal(status: int, data: bytes, url: str) -> ApiError:
    """Read `{"problems": […]}` of Merlot's own API, and `{"error": …}` or `{"code", "error"}` as Pinot writes it."""
    import http.client

    try:
        body = json.loads(data)
    except ValueError:
        body = None
    if not isinstance(body, dict) or body.get("noSuchPath"):
        if status in (http.client.NOT_FOUND, http.client.METHOD_NOT_ALLOWED):
            return ApiError(status, f"{url} is not there: is --url a node, or the right role's?")
        text = data.decode("utf-8", "replace").strip().splitlines()
        shown = text[0][:200] if text and not text[0].startswith("<") else http.client.responses.get(status, "")
        return ApiError(status, f"{url} answers HTTP {status}: {shown}")
    details = [_problem(problem) for problem in body.get("problems", ())]
    message = str(body.get("error") or body.get("message") or f"{url} answers HTTP {status}")
    return ApiError(status, message, details)


def _problem(problem: Any) -> str:
    if not isinstance(problem, dict):
        return str(problem)
    line = f"line {problem['line']}: " if problem.get("line") else ""
    if problem.get("document"):
        line = f"document {problem['document']}, {line}" if line else f"document {problem['document']}: "
    path = f"{problem['path']}: " if problem.get("path") else ""
    return f"{line}{path}{problem.get('message', '')}"
