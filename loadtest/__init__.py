"""A client that loads a running server; it imports nothing of the other packages."""
