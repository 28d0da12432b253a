"""Figures of a finished run, drawn from its record, its network and its data.

Imports `models.training`, but not studies.
"""
