"""The servers that are measured: how to start them, the networks they serve, and the formats they read."""
