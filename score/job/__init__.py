"""A job: its plan, the model, and the scoring of one part into one file."""
