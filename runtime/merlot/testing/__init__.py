"""Test support for Merlot and for code beside it: clocks, faults, contract suites.

It is shipped so that another metastore can prove itself. Nothing in the product imports it. An object is safe on the
thread of the test that made it, unless its class says more.
"""
