"""From a predicate to documents: index or scan, and the sets of docs that come out."""
