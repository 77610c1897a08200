"""Answers from star-trees instead of rows.

`requirements` says what a leaf needs, `choice` which tree of a segment answers it, `documents` what operators read
then. Any thread."""
