"""Credentials of the command line: `--user`, `--token-file`, or the environment."""

from __future__ import annotations

import os
import sys

from merlot.cli.errors import UsageError
from merlot.security import own_credentials


def log_in(user: str | None, token_file: str | None) -> None:
    """Have this command send the credentials of a user, or of a file, in place of those in the environment."""
    if user is None and token_file is None:
        return
    if user is not None and token_file is not None:
        raise UsageError("--user and --token-file are two ways to log in: choose one")
    os.environ.pop(own_credentials.TOKEN, None)
    os.environ.pop(own_credentials.TOKEN_FILE, None)
    if token_file is not None:
        os.environ[own_credentials.TOKEN_FILE] = token_file
        return
    os.environ[own_credentials.USER] = user or ""
    if not (os.environ.get(own_credentials.PASSWORD) or os.environ.get(own_credentials.PASSWORD_FILE)):
        os.environ[own_credentials.PASSWORD] = _asked(user or "")


def _asked(user: str) -> str:
    if not sys.stdin.isatty():
        raise UsageError(f"no password for {user}: set {own_credentials.PASSWORD} or {own_credentials.PASSWORD_FILE}")
    import getpass

    return getpass.getpass(f"password of {user}: ")
