"""Asks servers, and others when they fail. Runs on the role's event loop."""
