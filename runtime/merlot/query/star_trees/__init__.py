"""Answers from star-trees instead of rows.

`question` says what a leaf asks, `choice` which tree of a segment answers it, `documents` what operators read then. Any
thread."""
