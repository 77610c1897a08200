"""Plan a query from its text, reusing plans of the same text or shape; explain plans. Pure, but for the caches."""
