"""Which turnpike this is; an image may hold the package without its installation's metadata."""

VERSION = "0.1.0"
