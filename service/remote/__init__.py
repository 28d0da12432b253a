"""Remote repositories: models on object storage, through fsspec, with a cache of files on this machine.

`remote_repository` runs in the supervisor. `fetch` and `listing` run in a short-lived process of their own,
so that the libraries of stores neither stay in memory nor start threads there.
Imports only `service.repository`, `service.artifact` and `service.memory`.
"""
