"""The commands `turnpike train` and `turnpike compare`."""
