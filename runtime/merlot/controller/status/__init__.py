"""Status of the cluster, in one answer. Pure, but for the source of facts."""
