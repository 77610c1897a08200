"""`merlot get rollups`, `merlot get upserts` and `merlot rollup run`: show the progress of merges and the
upsert configs, and start a merge."""

import time
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Annotated, Any

import typer

from merlot.cli import output
from merlot.cli.client import DEFAULT_URL, NodeClient, Url, path_of
from merlot.cli.output import ListFormat
from merlot.values.periods import DAY_MS

Output = Annotated[
    ListFormat, typer.Option("--output", "-o", help="Format of the list; wide has more columns, name is for scripts.")
]
COLUMNS = {
    "NAME": "name",
    "TABLE": "table",
    "LEVEL": "level",
    "WATERMARK": "watermark",
    "DELAY": "delay",
    "STATE": "state",
    "LAST-RUN": "lastRun",
    "AGE": "age",
}
WIDE = {
    "DONE": "bucketsDone",
    "TO-DO": "bucketsToDo",
    "SEGMENTS": "segments",
    "SIZE": "size",
    "MERGED": "merged",
    "BEHIND": "segmentsBehindWatermark",
    "TASKS": "tasks",
    "NEXT-RUN": "nextRun",
    "ERROR": "error",
}
AGES = ((86_400, "d"), (3_600, "h"), (60, "m"), (1, "s"))

app = typer.Typer(no_args_is_help=True, help="Merge tasks: run one now.")


def list_rollups(
    name: Annotated[str | None, typer.Argument(help="Only this MergeRollupTask.", show_default=False)] = None,
    how: Output = ListFormat.TABLE,
    url: Url = DEFAULT_URL,
) -> None:
    """List the merges of tables, a line for each level, with their progress and state.

    DELAY counts the buckets that could be merged by now and are not. BEHIND
    (with -o wide) are segments that came too late for their bucket.
    """
    client = NodeClient(url)
    rollups = [client.get(path_of("rollups", name))] if name else client.get("/rollups")["rollups"]
    if how is ListFormat.JSON:
        output.show_json(rollups[0] if name else rollups)
        return
    if how is ListFormat.NAME:
        output.show_list(rollups, COLUMNS, WIDE, how)
        return
    if not rollups:
        output.warn("no merges: declare one with a MergeRollupTask, and `merlot apply -f FILE`")
        return
    output.show_list(
        [_level_row(rollup, level) for rollup in rollups for level in rollup["levels"]], COLUMNS, WIDE, how
    )
    for rollup in rollups:
        if rollup["message"]:
            output.warn(f"{rollup['name']}: {rollup['message']}")


def list_upserts(
    name: Annotated[str | None, typer.Argument(help="Only this UpsertConfig.", show_default=False)] = None,
    how: Output = ListFormat.TABLE,
    url: Url = DEFAULT_URL,
) -> None:
    """List the upsert configs."""
    client = NodeClient(url)
    configs = [client.get(path_of("upserts", name))] if name else client.get("/upserts")["upserts"]
    if not configs and how is ListFormat.TABLE:
        output.warn("no upsert configs: declare one with an UpsertConfig, and `merlot apply -f FILE`")
        return
    shown = [{**config, "age": age(config["createdMs"])} for config in configs]
    columns = {"NAME": "name", "MODE": "mode", "TTL": "primaryKeyTtl", "STATE": "state", "AGE": "age"}
    output.show_list(shown, columns, {"REVISION": "revision", "MESSAGE": "message"}, how)


@app.command("run")
def run(name: Annotated[str, typer.Argument(help="Name of the MergeRollupTask.")], url: Url = DEFAULT_URL) -> None:
    """Look for work now, whatever the schedule; tasks that failed for good are tried again."""
    result = NodeClient(url).post_json(f"{path_of('rollups', name)}/run", {})
    for task in result["retried"]:
        output.say(f"{task} is tried again")
    for task in result["queued"]:
        output.say(f"{task} queued")
    if not result["retried"] and not result["queued"]:
        output.say(f"rollup/{name} has nothing new to merge now")


def age(millis: int, now_s: float | None = None) -> str:
    """Return the time since an instant in kubectl's format; empty if it is unknown."""
    if millis < 0:
        return ""
    seconds = max(0, round((time.time() if now_s is None else now_s) - millis / 1000))
    size, unit = next(((size, unit) for size, unit in AGES if seconds >= 2 * size), AGES[-1])
    return f"{seconds // size}{unit}"


def _level_row(rollup: Mapping[str, Any], level: Mapping[str, Any]) -> dict[str, Any]:
    merged = level["merged"]
    next_ms = rollup.get("nextRunMs")
    return {
        **level,
        "name": rollup["name"],
        "table": rollup["table"],
        "level": level["name"],
        "watermark": _bucket_start(level["watermarkMs"]),
        "lastRun": age(rollup["lastRunMs"]),
        "nextRun": output.instant(next_ms),
        "age": age(rollup["createdMs"]),
        "size": output.size(level["sizeBytes"]),
        "merged": f"{merged['segmentsBefore']} to {merged['segmentsAfter']}" if merged["tasks"] else "",
        "tasks": level["tasksQueued"] + level["tasksPoisoned"],
        "error": level["lastError"] or rollup["lastError"],
    }


def _bucket_start(millis: int | None) -> str:
    """Return the start of a bucket, without the time of day if that is midnight; also before 1970."""
    if millis is None:
        return ""
    try:
        moment = datetime.fromtimestamp(millis / 1000, UTC)
    except (OverflowError, ValueError, OSError):
        return str(millis)
    return moment.strftime("%Y-%m-%d" if millis % DAY_MS == 0 else "%Y-%m-%d %H:%M:%S")
