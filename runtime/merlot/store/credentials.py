"""Read the credentials of deep stores that have a Secret of their own, from files. One process may hold several stores
of a kind, each with its own keys, which environment variables could not tell apart.

The variable MERLOT_STORE_SECRETS is a JSON object: from a store's URI, without its options, to the folder of its
Secret, with a file per key. Files are read again at every use, so an exchange of keys needs no restart.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from merlot.errors import InvalidInputError, UnavailableError
from merlot.schemes import Secret, scheme_named
from merlot.uris import scheme_of

VARIABLE = "MERLOT_STORE_SECRETS"


def folder_of(uri: str, environment: Mapping[str, str] = os.environ) -> Path | None:
    """Return the folder of a deep store's Secret, None if it has none. Raise InvalidInputError for a malformed
    variable."""
    text = environment.get(VARIABLE, "")
    if not text:
        return None
    try:
        folder = json.loads(text).get(without_options(uri))
    except (ValueError, AttributeError) as error:
        raise InvalidInputError(f"{VARIABLE} is no JSON object: {error}") from error
    return None if folder is None else Path(folder)


def problem_of(uri: str) -> str:
    """Return why the Secret of a deep store cannot be used now; an empty text if it can, or if there is none."""
    try:
        folder = folder_of(uri)
        if folder is not None:
            options_of(uri, folder)
    except (InvalidInputError, UnavailableError) as error:
        return str(error)
    return ""


def without_options(uri: str) -> str:
    """Return the part of a URI that identifies a deep store."""
    return uri.partition("?")[0]


def keys_of(uri: str) -> Secret | None:
    """Return the keys that the Secret of a deep store may have; None if its file system takes none."""
    scheme = scheme_named(scheme_of(uri))
    return None if scheme is None else scheme.secret


def options_of(uri: str, folder: Path) -> Mapping[str, Any]:
    """Return arguments of a deep store's file system, made from the files of its Secret.

    Raise UnavailableError if the Secret is missing or empty, InvalidInputError for keys that are unknown or
    incomplete."""
    keys = keys_of(uri)
    if keys is None:
        raise InvalidInputError(f"{scheme_of(uri)}:// takes no Secret secret={folder.name}")
    values = _read(folder)
    if not values:
        raise UnavailableError(f"the deep store's Secret is not there, or empty secret={folder.name}")
    if unknown := sorted(name for name in values if name.startswith(keys.prefix) and name not in keys.options):
        raise InvalidInputError(f"unknown keys in a deep store's Secret secret={folder.name} keys={unknown}")
    of_pair = [name for name in keys.together if name in values]
    if len(of_pair) == 1:
        pair = " and ".join(keys.together)
        raise InvalidInputError(f"{pair} belong together secret={folder.name} keys={sorted(values)}")
    options: dict[str, Any] = {option: values[name] for name, option in keys.options.items() if name in values}
    if "endpoint_override" in options and not of_pair:
        raise InvalidInputError(
            f"a deep store's Secret that names an endpoint brings its own keys, others are not sent there "
            f"secret={folder.name} keys={sorted(values)}"
        )
    if "endpoint_override" in options:
        parts = urlsplit(options["endpoint_override"])
        options |= {"endpoint_override": parts.netloc, "scheme": parts.scheme}
    return options


def _read(folder: Path) -> dict[str, str]:
    """Return the text of each file in the folder. Kubernetes puts a Secret's files behind links, beside folders whose
    names begin with dots."""
    try:
        files = [path for path in folder.iterdir() if not path.name.startswith(".") and path.is_file()]
        return {path.name: path.read_text().strip() for path in files}
    except FileNotFoundError:
        return {}
    except (OSError, UnicodeDecodeError) as error:
        raise UnavailableError(f"the deep store's Secret cannot be read secret={folder.name} reason={error}") from error
