"""Who may be asked for which segment, and which segments nobody need be asked for. Pure snapshots."""
