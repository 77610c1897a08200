"""Turn the three kinds that users declare into Kubernetes objects and into the desired state in ZooKeeper.

Pure functions decide, from an immutable view; the handlers only wake a level-based reconcile. The package never loads
the query engine. It runs on one event loop, which nothing here may block.
"""
