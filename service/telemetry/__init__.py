"""Counters of one worker, and the log. Written to by every layer; `api` turns the counters into metrics.

It imports only types and `bounded_cache` from the rest of the service.
"""
