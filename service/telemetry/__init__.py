"""Counters of one worker, and the log. Written to by every layer; `api` turns the counters into metrics.

Of the service it imports only types and `bounded_cache`.
"""
