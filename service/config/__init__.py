"""Settings of the service: what they are, where their values come from, and what `--workers auto` means.

Imports only `service.remote`, `service.repository` and `service.artifact`.
"""
