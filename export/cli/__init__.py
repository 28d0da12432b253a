"""The commands `turnpike export`, `verify` and `demo`: options, progress and results as text."""
