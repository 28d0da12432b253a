"""Reads, moves and watches gates: hidden outputs of a run become summaries, lesion effects and drift.

Imports `artifact`.
"""
