"""Build a segment file from rows: statistics, encodings, buffers, one atomic file.

Owns every decision at build time; must not read segments. One builder per thread; the content of a file depends on
rows and configuration alone.
"""
