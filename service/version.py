"""The version of turnpike. A constant, because an image may contain the package without its metadata."""

VERSION = "0.1.0"
