"""`merlot drain` and `merlot undrain`: route queries around a process before it stops."""

import time
from typing import Annotated, Any

import typer

from merlot.cli import output
from merlot.cli.client import DEFAULT_URL, NodeClient, Url, path_of
from merlot.cli.errors import CommandError

POLL_S = 0.5

Instance = Annotated[str, typer.Argument(help="Name of the process: see `merlot get instances`.", show_default=False)]


def drain(
    instance: Instance,
    leaving: Annotated[
        bool,
        typer.Option("--leaving", help="The process will not come back: move its segments to other servers first."),
    ] = False,
    wait: Annotated[bool, typer.Option("--wait/--no-wait", help="Wait until the process may be stopped.")] = True,
    timeout: Annotated[float, typer.Option("--timeout", help="Seconds to wait at most.")] = 600.0,
    url: Url = DEFAULT_URL,
) -> None:
    """Have brokers send queries elsewhere, until the process restarts or `merlot undrain` undoes it.

    A server is asked as before for segments that no other server holds: with one replica only --leaving drains it.
    """
    client = NodeClient(url)
    client.post(f"{path_of('instances', instance)}/drain", b"", "application/json", {"leaving": str(leaving).lower()})
    if not wait:
        output.say(f"instance/{instance} draining")
        return
    deadline = time.monotonic() + timeout
    while not (state := client.get("/status")["instances"].get(instance, {})).get("drained"):
        if time.monotonic() > deadline:
            raise CommandError(
                f"instance {instance} is still needed after {timeout:g} s", details=_needs(client, instance)
            )
        time.sleep(POLL_S)
    output.say(f"instance/{instance} drained" + ("" if state["live"] else ", and not running"))


def undrain(instance: Instance, url: Url = DEFAULT_URL) -> None:
    """Undo a drain."""
    NodeClient(url).post(f"{path_of('instances', instance)}/undrain", b"", "application/json")
    output.say(f"instance/{instance} takes part again")


def _needs(client: NodeClient, instance: str) -> list[str]:
    tables: dict[str, Any] = client.get("/status")["tables"]
    held = {name: table["servers"][instance] for name, table in tables.items() if instance in table["servers"]}
    return [
        f"table {name}: {output.plural(status['assigned'], 'segment')} assigned"
        for name, status in held.items()
        if not status["drained"]
    ]
