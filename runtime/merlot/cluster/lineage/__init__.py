"""Replacements of segments by others: started, loaded, then ended or reverted for all queries at once."""
