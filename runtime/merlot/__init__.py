"""Merlot: a real-time OLAP store for Kubernetes that speaks Apache Pinot's query API."""

__version__ = "0.1.0"
