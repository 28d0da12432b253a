"""Scores files of rows with a model: in parts, on all cores or a Ray cluster, and resumable."""
