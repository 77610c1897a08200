"""Replacements of segments by others: started, loaded, ended or reverted, in the eyes of every query at once."""
