"""Answers of the namespaces' controllers, and the metastore sessions that write desired state."""
