"""Build a segment file from rows: statistics, encodings, buffers, one atomic file.

Owns every decision at build time; must not read segments. One builder per thread; results depend on rows and
configuration alone.
"""
