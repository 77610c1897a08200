"""Processes and their reports: which of them live, which one leads, what each server has loaded, which are about to
stop.
"""
