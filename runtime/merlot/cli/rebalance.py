"""`merlot rebalance`: even out how many segments the servers of a table hold, and watch it happen."""

import sys
import time
from collections.abc import Mapping
from typing import Annotated, Any

import typer

from merlot.cli import output
from merlot.cli.client import DEFAULT_URL, NodeClient, Url, path_of
from merlot.cli.errors import CommandError, UsageError

POLL_S = 0.5
SETTLE_S = 10.0
"""Longest time until a rebalance is seen to move segments. It usually starts at once, since watches wake the
controller's loop."""


def rebalance(
    table: Annotated[str, typer.Argument(help="Name of the table.", show_default=False)],
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Show what would move, and move nothing.")] = False,
    abort: Annotated[bool, typer.Option("--abort", help="Stop moving: segments stay where they are loaded.")] = False,
    wait: Annotated[bool, typer.Option("--wait/--no-wait", help="Wait until every segment has arrived.")] = True,
    url: Url = DEFAULT_URL,
) -> None:
    """Even out how many segments the servers of a table hold, while queries run.

    A segment leaves a server only when another one has loaded it. Servers that join
    or leave are balanced automatically; this command also undoes an earlier --abort.
    """
    if dry_run and abort:
        raise UsageError("--dry-run and --abort exclude each other")
    client, path = NodeClient(url), path_of("tables", table, "rebalance")
    if abort:
        client.delete(path)
        output.say(f"table/{table} no longer rebalanced: segments stay where they are loaded")
        return
    plan = client.post(path, b"", "application/json", {"dryRun": "true"} if dry_run else None)
    _show_plan(table, plan)
    if plan["status"] == "IN_PROGRESS" and wait:
        _follow(client, path, table)


def _show_plan(table: str, plan: Mapping[str, Any]) -> None:
    if plan["status"] == "NO_OP":
        output.say(f"table/{table} is balanced, nothing to move")
        return
    rows = [
        [server, output.counted(counts["before"]), output.counted(counts["after"])]
        for server, counts in plan["servers"].items()
    ]
    output.show_table(["SERVER", "SEGMENTS", "AFTER"], rows, right=[1, 2])
    moved = output.plural(plan["segmentsToMove"], "segment")
    loaded = f"{output.plural(plan['replicasToLoad'], 'copy').replace('copys', 'copies')} to load"
    output.say(f"{moved} to move, {loaded} ({output.size(plan['bytesToLoad'])})")


def _follow(client: NodeClient, path: str, table: str) -> None:
    """Show progress on one line of a terminal until the rebalance ends."""
    deadline = time.monotonic() + SETTLE_S
    has_moved = False
    while True:
        done = client.get(path)
        if done["status"] == "ABORTED":
            raise CommandError(f"the rebalance of table {table} was aborted")
        is_moving = done["status"] == "IN_PROGRESS"
        has_moved = has_moved or is_moving
        if sys.stderr.isatty():
            text = f"{done['replicasLoaded']:,} of {done['replicasTotal']:,} loaded"
            sys.stderr.write(f"\r{text} ({output.size(done['bytesToLoad'])} to go) ")
        if not is_moving and (has_moved or time.monotonic() > deadline or _is_balanced(client, path)):
            break
        time.sleep(POLL_S)
    if sys.stderr.isatty():
        sys.stderr.write("\n")
    output.say(f"table/{table} rebalanced")


def _is_balanced(client: NodeClient, path: str) -> bool:
    plan: Mapping[str, Any] = client.post(path, b"", "application/json", {"dryRun": "true"})
    return bool(plan["status"] == "NO_OP")
