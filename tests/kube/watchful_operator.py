"""The operator, whose watches are opened anew every few seconds, so that they soon meet what changed in its rights."""

from typing import Any

from tests.kube import quick_operator

from merlot_operator import handlers, served


def main() -> int:
    """Run it; returns the exit code."""
    configure = handlers.configure

    def configured(settings: Any, config: Any) -> None:
        configure(settings, config)
        settings.watching.server_timeout, settings.watching.client_timeout = 1, 2

    handlers.configure = configured
    served.LOOK_S = served.FIRST_LOOK_S = 0.3
    handlers.FIRST_PAUSES_S, handlers.LONGEST_PAUSE_S = (0.1,) * 5, 0.3
    return quick_operator.main()
