"""Sidecars: files beside a segment's file, with indexes, derived columns and star-trees that the segment lacks.

A table may ask for them after the segment was built. `plan` lists them, `build` writes the file, `sidecar` reads it.
FORMAT.md §8. The segment's file stays as it is. A damaged or incomplete sidecar is treated as absent.
"""
