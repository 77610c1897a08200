"""Deletes what nobody names any more, once its grace period is over. Used by the leader's thread alone."""
