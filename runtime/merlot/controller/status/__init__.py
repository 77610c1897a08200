"""Status of the cluster: in one answer, and in the shapes of Pinot's clients. Pure, but for the source of facts."""
