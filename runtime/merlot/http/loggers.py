"""Pinot's paths that show and set log levels at run time."""

from __future__ import annotations

import logging
from typing import Final

from aiohttp import web

from merlot.http.described import TEXT, array, describe, one_of, query, record
from merlot.http.door import of_cluster
from merlot.security.access import Right

OURS: Final = "merlot"
ROOT: Final = "root"
LEVELS: Final = {
    "ALL": logging.NOTSET + 1,
    "TRACE": logging.NOTSET + 1,
    "DEBUG": logging.DEBUG,
    "INFO": logging.INFO,
    "WARN": logging.WARNING,
    "WARNING": logging.WARNING,
    "ERROR": logging.ERROR,
    "FATAL": logging.CRITICAL,
    "CRITICAL": logging.CRITICAL,
    "OFF": logging.CRITICAL + 1,
}
"""Log4j's names, as Pinot takes them, and Python's. Above CRITICAL nothing is logged."""
_LEVEL: Final = record({"name": TEXT, "level": TEXT})


def logger_routes() -> list[web.RouteDef]:
    """Return the routes `/loggers` and `/loggers/{logger}`."""
    return [
        web.get("/loggers", logger_names),
        web.get("/loggers/{logger}", logger_level),
        web.put("/loggers/{logger}", set_logger_level),
    ]


@describe(answer=array(TEXT), right=of_cluster(Right.ADMIN))
async def logger_names(_: web.Request) -> web.Response:
    """Names of Merlot's loggers: one per module, and their parents."""
    return web.json_response([ROOT, *_names()])


@describe(answer=_LEVEL, right=of_cluster(Right.ADMIN))
async def logger_level(request: web.Request) -> web.Response:
    """Name and level of a logger, its parents' if it has none."""
    name = request.match_info["logger"]
    if name != ROOT and name not in _names():
        return _problem(404, f"logger does not exist logger={name}; GET /loggers lists them")
    return _level_of(name)


@describe(
    query("level", "The level from now on.", one_of(*LEVELS), is_required=True),
    answer=_LEVEL,
    right=of_cluster(Right.ADMIN),
)
async def set_logger_level(request: web.Request) -> web.Response:
    """`?level=DEBUG`: from now on, until the process ends. Only Merlot's own: libraries write credentials at DEBUG."""
    name, level = request.match_info["logger"], request.query.get("level", "").upper()
    if level not in LEVELS:
        return _problem(400, f"level is unknown level={level or None} levels={','.join(LEVELS)}")
    if name == ROOT:
        return _problem(400, f"the root logger has those of libraries too; set {OURS}")
    if name not in _names():
        return _problem(404, f"logger does not exist logger={name}; GET /loggers lists them")
    logging.getLogger(name).setLevel(LEVELS[level])
    return _level_of(name)


def _names() -> list[str]:
    names = [name for name in logging.root.manager.loggerDict if name == OURS or name.startswith(f"{OURS}.")]
    return sorted({OURS, *names})


def _level_of(name: str) -> web.Response:
    number = logging.getLogger(None if name == ROOT else name).getEffectiveLevel()
    level = next((text for text, level_number in LEVELS.items() if level_number == number), str(number))
    return web.json_response({"name": name, "level": level})


def _problem(status: int, text: str) -> web.Response:
    return web.json_response({"code": status, "error": text}, status=status)
