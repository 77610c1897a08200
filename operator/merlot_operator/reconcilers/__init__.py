"""Level-based reconciles of each kind, the loop that runs them, and their rollout plans. One event loop."""
