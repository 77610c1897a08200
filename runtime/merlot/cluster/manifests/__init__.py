"""Manifests as they were applied: tables, rollups and upserts, each with its revision."""
