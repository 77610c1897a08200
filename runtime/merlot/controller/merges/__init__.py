"""What to merge next, and how far merges are: a pure generator, and the leader's loop around it."""
