"""Divide rows among segments, for batches and merges alike."""

from itertools import pairwise


def even_slices(num_rows: int, most: int) -> list[slice]:
    """Divide [0, num_rows) into as few parts of at most `most` rows as possible, whose sizes differ by one at most."""
    number = -(-num_rows // most)
    bounds = [num_rows * part // number for part in range(number + 1)] if number else []
    return [slice(start, stop) for start, stop in pairwise(bounds)]
