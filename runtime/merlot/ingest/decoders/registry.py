"""Client of a schema registry over HTTP, with Confluent's protocol. A schema never changes, so callers keep
it: nothing is cached here.
"""

from __future__ import annotations

import base64
import json
import urllib.error
import urllib.request
from collections.abc import Mapping
from http.client import HTTPException, HTTPMessage
from typing import IO, Final
from urllib.parse import urljoin, urlsplit

from merlot.errors import UnavailableError
from merlot.streams.protocol import StreamAccessError

USER_INFO: Final = "basic.auth.user.info"
TIMEOUT_S: Final = 10.0
MAX_SCHEMA_BYTES: Final = 16 << 20


class _SameHost(urllib.request.HTTPRedirectHandler):
    """Handler that refuses redirects to another scheme, host or port: the credentials are not meant for it, and it may
    not be an allowed host."""

    def redirect_request(
        self, req: urllib.request.Request, fp: IO[bytes], code: int, msg: str, headers: HTTPMessage, newurl: str
    ) -> urllib.request.Request | None:
        if urlsplit(req.full_url)[:2] != urlsplit(urljoin(req.full_url, newurl))[:2]:
            raise StreamAccessError(f"the schema registry sends to another host: name that one url={newurl}")
        return super().redirect_request(req, fp, code, msg, headers, newurl)


_OPENER: Final = urllib.request.build_opener(_SameHost)


class SchemaRegistry:
    """Client that gets schemas by their ids."""

    def __init__(self, url: str, properties: Mapping[str, str]) -> None:
        self._url = url.rstrip("/")
        user_info = properties.get(USER_INFO)
        credentials = base64.b64encode(user_info.encode()).decode() if user_info else None
        self._headers = {"Accept": "application/vnd.schemaregistry.v1+json, application/json"}
        self._headers |= {"Authorization": f"Basic {credentials}"} if credentials else {}

    def schema(self, number: int) -> str | None:
        """Return the text of an Avro schema; None if the registry has no schema with that id. Raise UnavailableError
        if it does not answer, StreamAccessError if it refuses."""
        request = urllib.request.Request(f"{self._url}/schemas/ids/{number}", headers=self._headers)
        try:
            with _OPENER.open(request, timeout=TIMEOUT_S) as answer:
                content = json.loads(answer.read(MAX_SCHEMA_BYTES))
                return str(content["schema"])
        except urllib.error.HTTPError as error:
            error.close()
            if error.code == 404:
                return None
            if error.code in (401, 403):
                raise StreamAccessError(f"the schema registry refuses access status={error.code}") from error
            raise UnavailableError(f"the schema registry fails number={number} status={error.code}") from error
        except (OSError, HTTPException, ValueError, KeyError, TypeError) as error:
            raise UnavailableError(f"the schema registry does not answer number={number} reason={error}") from error
