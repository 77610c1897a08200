"""The controller's endpoint: Pinot's paths and Merlot's own, bodies in and answers out. Decides nothing."""
