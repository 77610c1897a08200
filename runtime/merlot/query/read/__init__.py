"""Columns of a segment as a query reads them, chunk by chunk."""
