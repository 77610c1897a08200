"""What a leaf does with its documents: group, select, order."""
