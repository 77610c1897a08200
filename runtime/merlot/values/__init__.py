"""Values and their types: names of types, time formats, periods, durations, schedules, hashes.

Pure functions and frozen values without models or I/O, so any thread may call them.
"""
