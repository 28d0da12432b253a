"""The commands `turnpike serve` and `turnpike inspect`."""
