"""Bounds of one query, as a text and as the tree that travels: what tools really send, with room."""

from typing import Final

MAX_IN_VALUES: Final = 100_000
"""Values of all INs of a text, and of one IN of a tree."""
MAX_ROWS: Final = 2**32
"""Largest LIMIT of a tree, which may be the LIMIT and the OFFSET of a text."""
MAX_DEPTH: Final = 150
"""Levels of a tree. A text has at most 100, some of which binding wraps in a conversion."""
MAX_NODES: Final = 500_000
"""Literals, columns and calls of one tree: the longest IN three times, as SELECT, GROUP BY and ORDER BY repeat it."""
MAX_PLAN_BYTES: Final = 8 << 20
"""Longest encoded tree: a text of 1 MiB whose constants are all escaped."""
