"""Supervisor and worker processes: starts, watches, updates and stops the workers that serve `service.api`.

The supervisor imports neither NumPy nor pydantic nor `service.api`, so that it stays small.
"""
