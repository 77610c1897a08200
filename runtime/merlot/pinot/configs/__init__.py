"""Convert Pinot's table configs and schemas to manifests: `documents.convert`. Pure.

Owns the mapping of Pinot's settings to Merlot's. Every setting of a config ends in a manifest or in a note: `source`
tracks what has been read. No threads.
"""
