"""The commands `turnpike serve`, `turnpike predict` and `turnpike inspect`."""
