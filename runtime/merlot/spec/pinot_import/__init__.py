"""Manifests from Pinot's table configs and schemas: `documents.convert`. Pure.

Owns which of Pinot's settings is which of ours. Whatever a config says is either in a manifest or in a note: `source`
keeps count of what was read. No threads.
"""
