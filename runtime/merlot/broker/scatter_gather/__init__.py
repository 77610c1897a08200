"""Ask servers in parallel, and other replicas when servers fail. Runs on the role's event loop."""
