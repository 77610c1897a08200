"""Properties of stream clients that no manifest may hold: files of a folder, as Kubernetes mounts a Secret."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from merlot.errors import NotFoundError, UnavailableError


class SecretMissingError(NotFoundError):
    """Raised if the server has no such Secret, or if the Secret has no keys."""


def read_secret(folder: Path | None, name: str) -> Mapping[str, str]:
    """Return the contents of the Secret's files, by their names.

    Raises SecretMissingError if there is no such Secret, or not yet: Kubernetes mounts an empty folder until the Secret
    is made. Raises UnavailableError if it cannot be read."""
    if folder is None or not (folder / name).is_dir():
        raise SecretMissingError(f"no secret of this name on the server secret={name} folder={folder}")
    try:
        files = [file for file in (folder / name).iterdir() if file.is_file() and not file.name.startswith(".")]
        properties = {file.name: file.read_text() for file in files}
    except (OSError, UnicodeDecodeError) as error:
        raise UnavailableError(f"secret cannot be read secret={name} cause={error}") from error
    if not properties:
        raise SecretMissingError(f"secret has no keys yet secret={name} folder={folder}")
    return properties
