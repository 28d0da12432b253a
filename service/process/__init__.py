"""Supervisor and worker processes: starts, watches, updates and stops the workers.

The application that a worker serves is passed in. The supervisor imports neither it nor NumPy, so it stays
small.
"""
