"""Processes and what they say: who lives, who leads, what each server has loaded, who is about to stop."""
