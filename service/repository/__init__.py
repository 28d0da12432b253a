"""The model repository: a folder in, and out of it the versions that all workers serve.

Runs in the supervisor, so it never opens a model. Imports only `service.errors`.
"""
