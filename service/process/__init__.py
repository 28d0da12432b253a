"""Supervisor and worker processes: starts, watches, updates and stops the workers.

What a worker serves is passed in. The supervisor imports neither that nor NumPy, so it stays small.
"""
