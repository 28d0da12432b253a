"""Counters of one worker, and the log. Written to by every layer; `api` turns the counters into metrics.

Imports nothing of the service but types.
"""
