"""`uvicorn turnpike.service.asgi:app`: the service for any ASGI server, with the environment's settings."""

from __future__ import annotations

from turnpike.service.embedded.create_app import create_app

app = create_app()
