"""Client of the controller's HTTP API for the driver: read a table, apply one, publish segments in one call, read what
is published.

Blocking. Retries only requests that are safe to repeat, which all of them are: applying and publishing the same again
changes nothing.
"""

from __future__ import annotations

import hashlib
import http.client
import json
import ssl
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from merlot.cluster.records import SegmentRecord
from merlot.cluster.segments.coverage import RowCounts
from merlot.cluster.segments.publish import check_files
from merlot.errors import (
    AccessDeniedError,
    ConflictError,
    InvalidInputError,
    MerlotError,
    NotAuthenticatedError,
    NotFoundError,
    UnavailableError,
)
from merlot.ids import RawTableName, SegmentKey, SegmentName
from merlot.security import own_credentials
from merlot.security.tls import ClientTls
from merlot.spec import manifest, shape
from merlot.spec.shape import Shape
from merlot.spec.table import Table
from merlot.store.deepstore import DeepStore
from merlot.uris import redact

TIMEOUT_S = 60.0
WAITS_S = (0.2, 0.5, 1.0, 2.0, 4.0)
"""Seconds to wait before each further attempt while the controller cannot be reached."""
_FAMILIES: Mapping[int, type[MerlotError]] = {
    400: InvalidInputError,
    401: NotAuthenticatedError,
    403: AccessDeniedError,
    404: NotFoundError,
    409: ConflictError,
    413: InvalidInputError,
}
"""Errors by status code for answers that would be the same again. After any other status another attempt may
succeed."""


@dataclass(frozen=True, slots=True)
class Publication:
    """Results for the segments of a request."""

    published: tuple[str, ...]
    unchanged: tuple[str, ...]
    removed: tuple[str, ...]
    replaced: tuple[str, ...] = ()
    """Segments that were published in place of an older version."""
    rows: RowCounts | None = None
    """Rows of the table before and after; None if the controller is too old to report them."""


@dataclass(frozen=True, kw_only=True, slots=True)
class PublishOrder:
    """A request to publish."""

    table: RawTableName
    records: Sequence[Mapping[str, Any]]
    shape: Shape | None
    """Shape that the segments were built for."""
    replace_all: bool = False
    """True: the records stand for the whole table, and segments that are not among them are removed in the same
    step."""
    replace: Sequence[str] = ()
    """Segments that the records stand for, and that are removed likewise."""
    replace_rows: bool = False
    """True: rows that the records do not hold may be removed, and all rows if there are no records."""
    is_dry_run: bool = False
    """True: ask for the same answer, and have nothing written."""


@dataclass(frozen=True, slots=True)
class AppliedTable:
    """A table as its controller has it."""

    table: Table
    deep_store: str | None
    """URI below which the files of its segments have to be; None if the controller does not say."""
    shape: Shape | None = None
    """Shape that its segments have to be built for; None if the controller is too old to compare."""

    def check(self, table: Table, deep_store: str | None) -> None:
        """Raise InvalidInputError if segments that are built by `table`, or put into `deep_store`, could not be
        published. The problem is known before they are built."""
        raw_name = self.table.raw_name
        applied = self.shape or shape.shape_of(self.table.spec)
        shape.check(applied, shape.shape_of(table.spec), table=raw_name, what="the manifest")
        if self.deep_store is None or deep_store is None:
            return
        url = DeepStore(deep_store).url_of(self.table.name, SegmentKey(SegmentName("a"), 0))
        record = SegmentRecord(name="a", crc=0, size_bytes=0, url=url, total_docs=0)
        try:
            check_files(self.table.name, [record], self.deep_store)
        except InvalidInputError as error:
            expected = redact(self.deep_store)
            raise InvalidInputError(
                f"the table's files have to be in another deep store table={raw_name} applied={expected} "
                f"here={redact(deep_store)}; give --deep-store {expected}, or leave it out"
            ) from error


class ControllerClient:
    """A controller or an embedded node by its URL, e.g. `http://127.0.0.1:8099`; raises InvalidInputError for other
    URLs. For https:// it takes CAs, certificate and key from the environment (`ClientTls`)."""

    def __init__(self, url: str, *, waits_s: Sequence[float] = WAITS_S) -> None:
        self.url = url.rstrip("/")
        if not self.url.startswith(("http://", "https://")):
            raise InvalidInputError(f"a controller's URL begins with http:// or https:// url={redact(url)}")
        self._waits_s = tuple(waits_s)
        self._tls = ClientTls.of_environment() if self.url.startswith("https://") else None

    def apply(self, manifest_text: str) -> Any:
        """Create or change the tables of a manifest. Raise InvalidInputError with every problem."""
        return self._request("POST", "/apply", manifest_text.encode(), "application/yaml")

    def table(self, name: str) -> AppliedTable:
        """Return a table as it is applied. Raise NotFoundError if there is none of this name."""
        answer = self.get(f"/tables/{urllib.parse.quote(name)}/manifest")
        if not isinstance(answer, dict) or "manifest" not in answer:
            raise self._not_a_controller("GET", "the answer is no manifest")
        return AppliedTable(manifest.from_stored(answer["manifest"]), answer.get("deepStore"), answer.get("shape"))

    def publish(self, order: PublishOrder) -> Publication:
        """Make all records visible in one step. Raise InvalidInputError if rows would be removed that the order does
        not stand for, and if the table does not have the order's shape."""
        table = order.table
        body = {
            "publishId": publish_id(order.records),
            **({} if order.shape is None else {"shape": dict(order.shape)}),
            "records": list(order.records),
            "replace": list(order.replace),
            "replaceAll": order.replace_all,
            **({"replaceRows": True} if order.replace_rows else {}),
            # In the body: a controller that does not know it refuses the request, where it would ignore a parameter.
            **({"dryRun": True} if order.is_dry_run else {}),
        }
        answer = self._request(
            "POST", f"/segments/{urllib.parse.quote(table)}/publish", json.dumps(body).encode(), "application/json"
        )
        return Publication(
            published=tuple(answer["published"]),
            unchanged=tuple(answer["unchanged"]),
            removed=tuple(answer.get("removed", ())),
            replaced=tuple(answer.get("replaced", ())),
            rows=RowCounts(**answer["rows"]) if "rows" in answer else None,
        )

    def get(self, path: str) -> Any:
        """Return the JSON of a path."""
        return self._request("GET", path, None, None)

    def _request(self, method: str, path: str, body: bytes | None, content_type: str | None) -> Any:
        for wait_s in (*self._waits_s, None):
            try:
                return self._request_once(method, path, body, content_type)
            except UnavailableError:
                if wait_s is None:
                    raise
                time.sleep(wait_s)
        raise AssertionError("the last attempt returns or raises")

    def _request_once(self, method: str, path: str, body: bytes | None, content_type: str | None) -> Any:
        headers = {} if content_type is None else {"Content-Type": content_type}
        request = urllib.request.Request(self.url + path, data=body, method=method, headers=headers)
        for name, value in own_credentials.headers().items():
            request.add_unredirected_header(name, value)  # no other host gets them
        try:
            context = None if self._tls is None else self._tls.context()
            with urllib.request.urlopen(request, timeout=TIMEOUT_S, context=context) as answer:
                return json.loads(answer.read() or b"null")
        except ValueError as error:
            raise self._not_a_controller(method, "the answer is not JSON") from error
        except urllib.error.HTTPError as error:
            family = _FAMILIES.get(error.code, UnavailableError)
            raise family(f"{method} {self.url}{path} answered {error.code}: {_reason(error)}") from error
        except (OSError, http.client.HTTPException) as error:
            reason = error.reason if isinstance(error, urllib.error.URLError) else error
            if isinstance(reason, ssl.SSLError):
                raise InvalidInputError(
                    f"controller does not speak TLS as asked url={self.url} reason={reason}"
                ) from error
            raise UnavailableError(f"controller cannot be reached url={self.url} reason={reason}") from error

    def _not_a_controller(self, method: str, what: str) -> InvalidInputError:
        return InvalidInputError(
            f"this is no controller of Merlot url={self.url} reason: {method}: {what}; check --controller"
        )


def publish_id(records: Sequence[Mapping[str, Any]]) -> str:
    """Return an id that is the same for the same segments, so that a repeated publish is recognised."""
    keys = sorted(f"{record['name']}@{record['crc']}" for record in records)
    return hashlib.sha256("\n".join(keys).encode()).hexdigest()[:16]


def _reason(error: urllib.error.HTTPError) -> str:
    try:
        body = error.read()
    except (OSError, http.client.HTTPException) as cut:
        return f"{error.reason}; the answer's body cannot be read: {cut}"
    text = " ".join(body.decode(errors="replace").split())
    try:
        value = json.loads(text)
    except ValueError:
        return text[:500]
    if isinstance(value, dict):
        if value.get("problems"):
            return "; ".join(
                f"{problem.get('path', '')}: {problem.get('message', '')}" for problem in value["problems"]
            )
        return str(value.get("error") or value.get("message") or text)[:500]
    return text[:500]
