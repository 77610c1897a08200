"""Ways that only save time.

Each takes over at one call, or returns None and leaves the query to the general way, whose answer is the same. General
code knows the call and nothing else of a shortcut; what a shortcut makes of a plan, it keeps in the plan's `memo`.
"""
