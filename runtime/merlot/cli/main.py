"""`merlot` command: prints its own help at once, leaves roles to `cli.starting` and the rest to `cli.app`."""

import os
import sys
from collections.abc import Sequence

from merlot.cli import commands


def main(arguments: Sequence[str] | None = None) -> None:
    """Run a command line and exit with its exit code."""
    code = run(arguments)
    try:
        sys.stdout.flush()
    except BrokenPipeError:
        # The reader of the output, such as `head`, has exited; nothing may be flushed at exit either.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    sys.exit(code)


def run(arguments: Sequence[str] | None = None) -> int:
    """Run a command line; return its exit code."""
    given = sys.argv[1:] if arguments is None else list(arguments)
    if given in (["--help"], ["-h"]):
        sys.stdout.write(commands.help_text())
        return 0
    # Imported here: typer and the commands take longer to load than Python takes to start.
    if given and given[0] in commands.ROLES:
        from merlot.cli import starting

        return starting.run(given)
    from merlot.cli import app

    return app.run(given)


if __name__ == "__main__":
    main()
