"""What tests of Merlot, and of code beside it, are made of: clocks, faults, contract suites.

Shipped, so that another metastore can prove itself. Nothing in the product imports it. Safe on the thread of the test
that made it, unless a class says more.
"""
