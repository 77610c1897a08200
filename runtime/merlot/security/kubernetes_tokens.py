"""Have the API server review tokens of ServiceAccounts (TokenReview). A thin client, with the pod's own token."""

from __future__ import annotations

import os
import ssl
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import aiohttp
import orjson

from merlot.errors import NotAuthenticatedError, UnavailableError
from merlot.security.access import Identity
from merlot.security.rules import KubernetesReview

ACCOUNT_FOLDER: Final = Path("/var/run/secrets/kubernetes.io/serviceaccount")
SERVICE_ACCOUNT: Final = "system:serviceaccount:"
"""Begins the name of every ServiceAccount, and of nobody else."""
TIMEOUT_S: Final = 5.0
MAX_ANSWER_BYTES: Final = 1 << 20


class TokenReviewer:
    """Asks the API server about tokens."""

    def __init__(self, review: KubernetesReview, url: str | None = None, folder: Path = ACCOUNT_FOLDER) -> None:
        self._audiences = list(review.audiences)
        self._folder = folder
        host, port = os.environ.get("KUBERNETES_SERVICE_HOST", ""), os.environ.get("KUBERNETES_SERVICE_PORT", "443")
        server = url or (f"https://[{host}]:{port}" if ":" in host else f"https://{host}:{port}")
        self._url = f"{server}/apis/authentication.k8s.io/v1/tokenreviews"

    async def identify(self, token: str) -> Identity:
        """Return the ServiceAccount of a token. Raise NotAuthenticatedError if the API server does not accept the
        token, UnavailableError if it does not answer."""
        spec = {"token": token, **({"audiences": self._audiences} if self._audiences else {})}
        body = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenReview", "spec": spec}
        try:
            own = (self._folder / "token").read_text().strip()
            context = ssl.create_default_context(cafile=str(self._folder / "ca.crt"))
            answer = await self._post(orjson.dumps(body), own, context)
        except (aiohttp.ClientError, TimeoutError, OSError, orjson.JSONDecodeError) as error:
            raise UnavailableError(f"the API server does not review tokens url={self._url} cause={error!r}") from error
        return reviewed(answer, self._audiences)

    async def _post(self, body: bytes, own: str, context: ssl.SSLContext) -> Any:
        headers = {"Authorization": f"Bearer {own}", "Content-Type": "application/json"}
        timeout = aiohttp.ClientTimeout(total=TIMEOUT_S)
        async with (
            aiohttp.ClientSession(timeout=timeout) as session,
            session.post(self._url, data=body, headers=headers, ssl=context, allow_redirects=False) as answer,
        ):
            answer.raise_for_status()
            return orjson.loads(await answer.content.read(MAX_ANSWER_BYTES))


def reviewed(answer: Any, audiences: list[str]) -> Identity:
    """Return the ServiceAccount in a TokenReview's answer. Raise NotAuthenticatedError if it holds none, or if the
    token is for none of the audiences. Other users of the API server are nobody here: their names and groups may be
    those of users and groups of the access document."""
    status = answer.get("status", {}) if isinstance(answer, Mapping) else {}
    user = status.get("user", {})
    is_for_us = not audiences or bool(set(status.get("audiences", ())) & set(audiences))
    name = str(user.get("username", ""))
    if status.get("authenticated") is not True or not name.startswith(SERVICE_ACCOUNT) or not is_for_us:
        raise NotAuthenticatedError("the API server does not accept the token as one of a ServiceAccount")
    return Identity(name, frozenset(map(str, user.get("groups", ()))), "kubernetes")
