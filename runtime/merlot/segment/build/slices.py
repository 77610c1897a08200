"""How many rows go into which of several segments, for batches and merges alike."""

from itertools import pairwise


def even_slices(num_rows: int, most: int) -> list[slice]:
    """[0, num_rows) in as few parts of at most `most` as will do, none larger than another by more than one."""
    number = -(-num_rows // most)
    bounds = [num_rows * part // number for part in range(number + 1)] if number else []
    return [slice(start, stop) for start, stop in pairwise(bounds)]
