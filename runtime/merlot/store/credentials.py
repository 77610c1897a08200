"""Credentials of deep stores that have a Secret of their own, as files: one process may hold several stores of a kind,
each with its own keys, which the environment cannot tell apart.

The variable MERLOT_STORE_SECRETS is a JSON object: URI of a store, without its options, to the folder of its Secret,
a file per key. Files are read again at every use, so keys that are exchanged need no restart.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from merlot.errors import InvalidInputError, UnavailableError

VARIABLE = "MERLOT_STORE_SECRETS"
PREFIX = "AWS_"
KEYS: Mapping[str, str] = {
    "AWS_ACCESS_KEY_ID": "access_key",
    "AWS_SECRET_ACCESS_KEY": "secret_key",
    "AWS_SESSION_TOKEN": "session_token",
    "AWS_DEFAULT_REGION": "region",
    "AWS_REGION": "region",
    "AWS_ENDPOINT_URL": "endpoint_override",
    "AWS_ENDPOINT_URL_S3": "endpoint_override",
}
"""Of a Secret, to pyarrow's options; of two for one option the later counts."""


def folder_of(uri: str, environment: Mapping[str, str] = os.environ) -> Path | None:
    """Where the Secret of a deep store is, None if it has none of its own. InvalidInputError for a wrong variable."""
    text = environment.get(VARIABLE, "")
    if not text:
        return None
    try:
        folder = json.loads(text).get(without_options(uri))
    except (ValueError, AttributeError) as error:
        raise InvalidInputError(f"{VARIABLE} is no JSON object: {error}") from error
    return None if folder is None else Path(folder)


def problem_of(uri: str) -> str:
    """Why the Secret of a deep store cannot be used now; empty if it can, or there is none."""
    try:
        folder = folder_of(uri)
        if folder is not None:
            s3_options(folder)
    except (InvalidInputError, UnavailableError) as error:
        return str(error)
    return ""


def without_options(uri: str) -> str:
    """What makes a deep store the same one."""
    return uri.partition("?")[0]


def s3_options(folder: Path) -> dict[str, Any]:
    """Options of pyarrow's S3FileSystem from the files of a Secret.

    UnavailableError if the Secret is not there, InvalidInputError for keys that nothing can be done with."""
    found = _keys(folder)
    if not found:
        raise UnavailableError(f"the deep store's Secret is not there, or empty secret={folder.name}")
    if unknown := sorted(name for name in found if name.startswith(PREFIX) and name not in KEYS):
        raise InvalidInputError(f"unknown keys in a deep store's Secret secret={folder.name} keys={unknown}")
    if ("AWS_ACCESS_KEY_ID" in found) != ("AWS_SECRET_ACCESS_KEY" in found):
        raise InvalidInputError(
            f"AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY belong together secret={folder.name} keys={sorted(found)}"
        )
    options: dict[str, Any] = {option: found[name] for name, option in KEYS.items() if name in found}
    if "endpoint_override" in options and "access_key" not in options:
        raise InvalidInputError(
            f"a deep store's Secret that names an endpoint brings its own keys, others are not sent there "
            f"secret={folder.name} keys={sorted(found)}"
        )
    if "endpoint_override" in options:
        parts = urlsplit(options["endpoint_override"])
        options |= {"endpoint_override": parts.netloc, "scheme": parts.scheme}
    return options


def _keys(folder: Path) -> dict[str, str]:
    """Kubernetes puts a Secret's files behind links, beside folders whose names begin with dots."""
    try:
        files = [path for path in folder.iterdir() if not path.name.startswith(".") and path.is_file()]
        return {path.name: path.read_text().strip() for path in files}
    except FileNotFoundError:
        return {}
    except (OSError, UnicodeDecodeError) as error:
        raise UnavailableError(f"the deep store's Secret cannot be read secret={folder.name} reason={error}") from error
