"""An operator that no longer reconciles is not ready, and ends to be started again, whatever of it hangs."""

from __future__ import annotations

import urllib.error
import urllib.request
from pathlib import Path

import pytest
from hanging_operator import PARTS
from operator_parts import Api, Controller, Operator, eventually
from test_operator import flights

pytestmark = [
    pytest.mark.cluster,
    pytest.mark.filterwarnings("ignore::urllib3.exceptions.InsecureRequestWarning"),
]

NEVER_READY = {"passes", "passes in threads"}
"""What hangs before anybody asks whether it is ready: it may have been once."""


@pytest.mark.parametrize("part", PARTS)
def test_an_operator_of_which_a_part_hangs_is_unready_and_then_ends(
    api: Api, controller: Controller, settings: dict[str, str], tmp_path: Path, part: str
) -> None:
    api.create("tables", flights())
    with Operator(settings, tmp_path / "operator.log", program="hanging_operator", arguments=[part]) as operator:
        seen: list[int] = []

        def has_ended() -> bool:
            seen.append(_ready(operator.port))
            return operator.exit_code() is not None

        eventually(has_ended, log=lambda: operator.log)
        assert operator.exit_code() == 1
        assert "operator ends by force" in operator.log
        assert 200 in seen or part in NEVER_READY
        assert 200 not in seen[-3:], "it was ready until its end"


def _ready(port: int) -> int:
    """Status of `/readyz`; 0 if nobody answers."""
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/readyz", timeout=1) as answer:
            return int(answer.status)
    except urllib.error.HTTPError as error:
        return error.code
    except OSError:
        return 0
