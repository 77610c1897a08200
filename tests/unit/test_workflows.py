"""The workflows of hosted continuous integration run commands that exist."""

import subprocess
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).parent.parent.parent
WORKFLOWS = sorted((ROOT / ".github" / "workflows").glob("*.yml"))


def make_commands() -> list[str]:
    """Every step of every workflow that calls make."""
    jobs = [job for path in WORKFLOWS for job in yaml.safe_load(path.read_text())["jobs"].values()]
    steps = [step.get("run", "") for job in jobs for step in job["steps"]]
    return sorted({step for step in steps if step.startswith("make ")})


@pytest.mark.parametrize("command", make_commands())
def test_every_make_command_of_a_workflow_has_its_target(command: str) -> None:
    ended = subprocess.run([*command.split(), "--dry-run"], cwd=ROOT, capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stderr


def test_workflows_check_test_and_run_end_to_end() -> None:
    assert {"make check", "make test WORKERS=4", "make kind-test", "make test-all WORKERS=4"} <= set(make_commands())
