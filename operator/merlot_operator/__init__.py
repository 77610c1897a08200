"""From the three kinds that users declare to Kubernetes objects, and to the desired state in ZooKeeper.

Decides in pure functions from an immutable view; the handlers only wake a level-based reconcile. Never loads the
engine. Runs on one event loop: nothing here blocks it.
"""
