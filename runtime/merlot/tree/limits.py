"""Limits of one query, as text and as encoded tree: more than tools really send."""

from typing import Final

MAX_IN_VALUES: Final = 100_000
"""Most values of all INs of a text, and of one IN of a tree."""
MAX_ROWS: Final = 2**32
"""Largest LIMIT or OFFSET of a tree. Its LIMIT may be the sum of a text's LIMIT and OFFSET."""
MAX_DEPTH: Final = 150
"""Most levels of a tree. A text has at most 100, and binding wraps some of them in a conversion."""
MAX_NODES: Final = 500_000
"""Most arguments of all calls and aggregates of a tree: more than those of the longest IN three times, as SELECT, GROUP
BY and ORDER BY may repeat it."""
MAX_PLAN_BYTES: Final = 8 << 20
"""Longest encoded tree: that of a text of 1 MiB whose constants are all escaped."""
