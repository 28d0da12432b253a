"""Loads model files and holds the models of a worker: a file goes in, a model that can run comes out.

Imports `gates`, `batching`, `repository`, `memory`, `telemetry` and `artifact`.
"""
