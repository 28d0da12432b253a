"""The command `turnpike score`."""
