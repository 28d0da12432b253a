"""Limits on memory: of a worker process, and of all requests in it; and freed memory for the system.

Imports no other folder. How large the limits are says `service.config.memory_share`.
"""
