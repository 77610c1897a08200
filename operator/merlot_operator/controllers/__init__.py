"""What the namespaces' controllers tell, and the way of desired state into their ZooKeeper."""
