"""Conditions and status of declared objects from what is known about them. Pure, but for the reporter."""
