"""kubectl as a process: it returns JSON objects and opens port-forwards to pods of the cluster."""

from __future__ import annotations

import contextlib
import json
import re
import selectors
import shutil
import subprocess
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from merlot.cli.errors import CommandError
from merlot_operator.kube.kinds import SELECTOR

TIMEOUT_S = 60.0
FORWARD_S = 15.0
_FORWARDING = re.compile(rb"Forwarding from 127\.0\.0\.1:(\d+)")


@dataclass(frozen=True, slots=True)
class Kubectl:
    """Calls of kubectl in a namespace and a context; an empty text leaves the choice to the kubeconfig."""

    namespace: str = ""
    context: str = ""

    def run(self, *arguments: str, text: str | None = None) -> str:
        """Run kubectl and return its standard output. Raise CommandError with its message if it fails."""
        command = self._command(*arguments)
        try:
            process = subprocess.run(
                command, input=text, capture_output=True, text=True, timeout=TIMEOUT_S, check=False
            )
        except subprocess.TimeoutExpired:
            raise CommandError(f"kubectl {arguments[0]} did not end within {TIMEOUT_S:.0f} s") from None
        if process.returncode != 0:
            raise CommandError(process.stderr.strip() or f"kubectl {arguments[0]} failed")
        return process.stdout

    def passed_through(self, *arguments: str) -> int:
        """Run kubectl with this terminal; return the exit code."""
        return subprocess.run(self._command(*arguments), check=False).returncode

    def get(self, kind: str, name: str) -> dict[str, Any]:
        """Return an object. Raise CommandError if it does not exist."""
        return dict(json.loads(self.run("get", kind, name, "-o", "json")))

    def managed(self, kinds: str, selector: str = "") -> list[dict[str, Any]]:
        """Return the objects that the operator created here, selected by further labels."""
        labels = f"{SELECTOR},{selector}" if selector else SELECTOR
        return list(json.loads(self.run("get", kinds, "-l", labels, "-o", "json"))["items"])

    @contextlib.contextmanager
    def forwarded(self, target: str, port: int) -> Iterator[str]:
        """Yield the URL of a local port that leads to a Service or pod while the block runs."""
        command = self._command("port-forward", "--address=127.0.0.1", target, f":{port}")
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        try:
            yield f"http://127.0.0.1:{_local_port(process, target)}"
        finally:
            process.terminate()
            process.communicate()

    def _command(self, *arguments: str) -> list[str]:
        program = shutil.which("kubectl")
        if program is None:
            raise CommandError("kubectl is not on the PATH")
        chosen = [f"--namespace={self.namespace}"] if self.namespace else []
        chosen += [f"--context={self.context}"] if self.context else []
        return [program, *chosen, *arguments]


def _local_port(process: subprocess.Popen[bytes], target: str) -> int:
    """Return the port that kubectl prints once it listens."""
    assert process.stdout is not None
    deadline, seen = time.monotonic() + FORWARD_S, b""
    with selectors.DefaultSelector() as selector:
        selector.register(process.stdout, selectors.EVENT_READ)
        while (left := deadline - time.monotonic()) > 0 and selector.select(left):
            chunk = process.stdout.read1(4096)  # type: ignore[attr-defined]
            seen += chunk
            if match := _FORWARDING.search(seen):
                return int(match.group(1))
            if not chunk:
                break
    process.terminate()
    _, error = process.communicate()
    raise CommandError(f"cannot reach {target}: {error.decode(errors='replace').strip() or 'kubectl says nothing'}")


def lines(texts: Sequence[str]) -> str:
    """Return the texts as lines, each with its end."""
    return "".join(f"{text}\n" for text in texts)
