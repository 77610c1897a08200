"""Which servers hold which segments, what moves and what is too old. Pure, but for the rebalance service."""
