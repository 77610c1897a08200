"""A pod without rights that writes where operators mark in ZooKeeper that they have come: `intruder.py HOSTS NODE…`.

Each round takes every node over in one of the ways below. A line of JSON after each tells the rounds so far.
"""

import json
import sys
import time
from itertools import count

from kazoo.client import KazooClient
from kazoo.exceptions import NoNodeError

PERIOD_S = 1.0
GARBAGE = b"\x00 not a record"


def seize(client: KazooClient, node: str, round_: int) -> None:
    """Take the fence as the operator does, break its record, or remove it."""
    match round_ % 3:
        case 0:
            client.set(node, client.get(node)[0])
        case 1:
            client.set(node, GARBAGE)
        case _:
            client.delete(node)


def main() -> None:
    hosts, *nodes = sys.argv[1:]
    client = KazooClient(hosts)
    client.start()
    seized = 0
    for round_ in count():
        for node in nodes:
            try:
                seize(client, node, round_)
                seized += 1
            except NoNodeError:
                pass  # The operator has not come back yet.
        print(json.dumps({"rounds": round_, "seized": seized}), flush=True)
        time.sleep(PERIOD_S)


if __name__ == "__main__":
    main()
