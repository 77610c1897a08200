"""Indexes and star-trees that a table was given after a segment was built: in a file beside the segment's.

`plan` says what a segment lacks of what its table asks for, `build` makes the file of it, `sidecar` reads it.
FORMAT.md §8. The segment's file stays as it is; a sidecar that is not whole and right is as if it were not there.
"""
