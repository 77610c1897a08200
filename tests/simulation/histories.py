"""Plays many histories in processes of their own, each from its seed."""

from __future__ import annotations

import logging
import multiprocessing
import os
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from typing import Protocol, TypeVar

T = TypeVar("T")
NUM_CHUNKS = 10
HASH_SEED = "0"
"""Of the processes: a set of texts has one order in all of them, and a seed one history."""


class World(Protocol):
    def run(self) -> None: ...


def play_all(play: Callable[[Sequence[int]], T], num_histories: int) -> list[T]:
    """The results of `play`, which gets the seeds of a part of the histories."""
    seeds = [range(first, num_histories, NUM_CHUNKS) for first in range(min(NUM_CHUNKS, num_histories))]
    before = os.environ.get("PYTHONHASHSEED")
    os.environ["PYTHONHASHSEED"] = HASH_SEED
    try:
        with ProcessPoolExecutor(os.cpu_count(), multiprocessing.get_context("spawn")) as processes:
            return list(processes.map(play, seeds))
    finally:
        os.environ.pop("PYTHONHASHSEED")
        if before is not None:
            os.environ["PYTHONHASHSEED"] = before


def failure_of(world: World) -> str:
    """What is wrong with a history; empty if nothing is. What the product logs of the faults is not shown."""
    logging.disable(logging.CRITICAL)
    try:
        world.run()
    except AssertionError as error:
        return str(error)
    finally:
        logging.disable(logging.NOTSET)
    return ""
