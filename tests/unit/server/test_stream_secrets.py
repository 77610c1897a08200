"""Secrets that streams are read with."""

from pathlib import Path

import pytest

from merlot.errors import NotFoundError, UnavailableError
from merlot.server.realtime.secrets import read_secret


def test_its_files_are_properties_and_what_kubernetes_puts_beside_them_is_none(tmp_path: Path) -> None:
    kept = tmp_path / "merlot-trips" / "..2026_11_22"
    kept.mkdir(parents=True)
    (kept / "sasl.username").write_text("trips")
    (kept.parent / "..data").symlink_to(kept.name)
    (kept.parent / "sasl.username").symlink_to("..data/sasl.username")
    assert read_secret(tmp_path, "merlot-trips") == {"sasl.username": "trips"}


def test_a_secret_that_nobody_made_yet_is_told_and_not_taken_for_no_secrets(tmp_path: Path) -> None:
    (tmp_path / "merlot-empty").mkdir()
    for folder, name in ((None, "merlot-trips"), (tmp_path, "merlot-trips"), (tmp_path, "merlot-empty")):
        with pytest.raises(NotFoundError, match=f"secret={name}"):
            read_secret(folder, name)


def test_a_secret_that_is_no_text_is_told(tmp_path: Path) -> None:
    (tmp_path / "merlot-trips").mkdir()
    (tmp_path / "merlot-trips" / "ssl.key.pem").write_bytes(b"\xff\xfe")
    with pytest.raises(UnavailableError, match="secret=merlot-trips"):
        read_secret(tmp_path, "merlot-trips")
