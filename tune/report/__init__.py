"""Writes the results of a search. In: the result. Out: `tuned.toml` and `tuned.html`."""
