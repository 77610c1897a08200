"""Test support for authors of plug-ins: contract suites for metastores and streams, a clock to set, bounded waits.

It is shipped so that another metastore or stream can prove itself. Nothing in the product imports it; helpers of
Merlot's own tests are in `tests/support`. An object is safe on the thread of the test that made it, unless its class
says more.
"""
