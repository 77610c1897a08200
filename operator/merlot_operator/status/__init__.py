"""Conditions and status of declared objects. Pure, but for the reporter."""
