"""Sidecars: files beside a segment's file, with indexes and star-trees that its table was given after it was built.

`plan` lists what a segment lacks of what its table asks for, `build` writes the file, `sidecar` reads it. FORMAT.md §8.
The segment's file stays as it is. A damaged or incomplete sidecar is treated as absent.
"""
