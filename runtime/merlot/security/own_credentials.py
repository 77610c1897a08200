"""Credentials that a process of Merlot itself sends: of the command line, of Spark jobs and of the operator.

They come from the environment or from files, never from a URL or an argument, which others on the machine can read. A
file is read for each request, so that a token that is renewed is used at once.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from merlot.errors import InvalidInputError
from merlot.security import credentials

TOKEN: Final = "MERLOT_TOKEN"
TOKEN_FILE: Final = "MERLOT_TOKEN_FILE"
USER: Final = "MERLOT_USER"
PASSWORD: Final = "MERLOT_PASSWORD"
PASSWORD_FILE: Final = "MERLOT_PASSWORD_FILE"


def authorization(environment: Mapping[str, str] | None = None) -> str | None:
    """Return the value of `Authorization`; None if the environment has no credentials. Raise InvalidInputError if they
    cannot be read."""
    given = os.environ if environment is None else environment
    token = given.get(TOKEN) or _content(given, TOKEN_FILE)
    if token:
        return credentials.bearer(_one_line(token, TOKEN))
    user = given.get(USER)
    if not user:
        return None
    password = given.get(PASSWORD) or _content(given, PASSWORD_FILE)
    if password is None:
        raise InvalidInputError(f"{USER} has no password: set {PASSWORD} or {PASSWORD_FILE}")
    return credentials.basic(user, password)


def headers(environment: Mapping[str, str] | None = None) -> dict[str, str]:
    """Return the headers of a request with these credentials; none if there are none."""
    value = authorization(environment)
    return {} if value is None else {"Authorization": value}


def _content(given: Mapping[str, str], name: str) -> str | None:
    path = given.get(name)
    if not path:
        return None
    try:
        return Path(path).read_text().strip()
    except (OSError, ValueError) as error:
        raise InvalidInputError(f"{name} cannot be read path={path} reason={error}") from error


def _one_line(token: str, name: str) -> str:
    if not token.isascii() or not token.isprintable() or " " in token:
        raise InvalidInputError(f"{name} is no token: it has blanks, line breaks or other characters")
    return token
