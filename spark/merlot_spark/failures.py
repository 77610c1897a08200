"""Translate Spark's errors into Merlot's, with the cause in the first line. Pure, but for `translated`.

Spark reports a failure in Python on an executor by the traceback's text, and a failure in the JVM by an error of its
own or by py4j's, whose text alone has the causes. Merlot's own errors come through as they were raised. Failures by the
source's values or the manifest's expressions become InvalidInputError, which nobody retries; all others become
UnavailableError.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager

from py4j.protocol import Py4JError, Py4JJavaError  # type: ignore[import-untyped]
from pyspark.errors import PySparkException

from merlot.errors import InvalidInputError, MerlotError, UnavailableError

MAX_REASON = 600
_RAISED = re.compile(r"(?P<name>[A-Za-z_][\w.]*)(?:: (?P<message>.*))?$")
_CONDITION = re.compile(r"\[[A-Z0-9_]+(\.[A-Z0-9_]+)?\] ")
_STATE = re.compile(r" ?SQLSTATE: (\w{5})")
_WRONG_INPUT_STATES = ("22", "42", "0A")
"""Classes of SQLSTATE: values that do not fit, wrong expressions or types, and what Spark does not support."""
_WRONG_FILES = ("PARQUET_COLUMN_DATA_TYPE_MISMATCH", "is not a Parquet file", "Malformed ORC file")
_OF_THE_MACHINE = ("ArrowMemoryError", "ArrowCancelled")
"""Arrow's errors that are not about values."""


@contextmanager
def translated() -> Iterator[None]:
    """Raise Spark's errors of the block as Merlot's."""
    try:
        yield
    except (PySparkException, Py4JError) as error:
        raise failure(error) from error


def failure(error: PySparkException | Py4JError) -> MerlotError:
    """Return the error that says what happened and who must act."""
    text = str(error).strip()
    own = _own(text)
    if own is not None:
        return own
    if "Traceback (most recent call last):" in text:
        return _of_python(text)
    if isinstance(error, Py4JError) and not isinstance(error, Py4JJavaError):
        return UnavailableError(f"Spark no longer answers: {java_reason(text)}")
    state = _STATE.search(text)
    is_wrong = state is not None and state.group(1).startswith(_WRONG_INPUT_STATES)
    reason = _plain(java_reason(text) if isinstance(error, Py4JError) else _sql_reason(text))
    if is_wrong or any(sign in text for sign in _WRONG_FILES):
        return InvalidInputError(f"the source cannot be read as declared: {reason}")
    return UnavailableError(f"the Spark job failed: {reason}")


def java_reason(trace: str) -> str:
    """Return the error and its last cause from a text whose other lines are stack frames."""
    lines = trace.splitlines()
    heads = [_message_from(lines, number) for number, line in enumerate(lines) if line.startswith(": ")]
    causes = [_message_from(lines, number) for number, line in enumerate(lines) if line.startswith("Caused by: ")]
    heads = [head.removeprefix(": ") for head in heads]
    causes = [cause.removeprefix("Caused by: ") for cause in causes]
    return "; caused by ".join(dict.fromkeys([*heads[:1], *causes[-1:]])) or " ".join(map(str.strip, lines[:2]))


def _message_from(lines: list[str], first: int) -> str:
    """Return a message that may go on over several lines, up to the stack frames."""
    end = next((number for number in range(first + 1, len(lines)) if lines[number].startswith("\t")), len(lines))
    own = [line.strip() for line in lines[first:end] if not line.startswith("Caused by: ") or line is lines[first]]
    return " ".join(filter(None, own))


def _own(text: str) -> MerlotError | None:
    """Return Merlot's own error that was raised on an executor, in the family of its class; None if there is none."""
    classes = {f"{subclass.__module__}.{subclass.__qualname__}": subclass for subclass in _subclasses(MerlotError)}
    for line in reversed(text.splitlines()):
        raised = _RAISED.match(line)
        if raised is not None and raised["name"] in classes:
            return _family(classes[raised["name"]])(raised["message"] or raised["name"])
        if raised is not None and raised["name"].startswith("merlot.") and raised["name"].endswith("Error"):
            return UnavailableError(raised["message"] or raised["name"])
    return None


def _family(raised: type[MerlotError]) -> type[MerlotError]:
    """Return the class itself or the nearest one above it in `merlot.errors`, which takes nothing but a message."""
    return next(base for base in raised.__mro__ if base.__module__ == MerlotError.__module__)


def _subclasses(root: type[MerlotError]) -> Iterator[type[MerlotError]]:
    for subclass in root.__subclasses__():
        yield subclass
        yield from _subclasses(subclass)


def _of_python(text: str) -> MerlotError:
    """Return the error for the exception that ended the task: the line after the last frame of the traceback."""
    lines = text.splitlines()
    last_frame = max((number for number, line in enumerate(lines) if line.startswith("  File ")), default=0)
    ended = next((line for line in lines[last_frame:] if line and not line[0].isspace()), lines[-1])
    raised = _RAISED.match(ended)
    name = "" if raised is None else raised["name"].rpartition(".")[2]
    reason = _plain(ended if raised is None else ": ".join(filter(None, [name, raised["message"]])))
    if name.startswith("Arrow") and name not in _OF_THE_MACHINE:
        return InvalidInputError(f"a value cannot be stored: {reason}")
    return UnavailableError(f"the Spark job failed: {reason}")


def _sql_reason(text: str) -> str:
    """Return Spark's message and the expression that it is about."""
    lines = text.splitlines()
    marks = [number for number, line in enumerate(lines) if line.startswith("== SQL")]
    expression = f"; in {lines[marks[0] + 1].strip()}" if marks and marks[0] + 1 < len(lines) else ""
    return f"{_message_from(lines[: marks[0]] if marks else lines, 0)}{expression}"


def _plain(reason: str) -> str:
    """Remove texts that only Spark's own documents explain."""
    return _STATE.sub("", _CONDITION.sub("", reason)).replace("org.apache.spark.SparkException: ", "")[:MAX_REASON]
