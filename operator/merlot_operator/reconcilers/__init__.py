"""Level-based reconciles of each kind, and what they do next. One event loop."""
