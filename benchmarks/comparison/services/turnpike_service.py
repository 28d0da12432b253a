"""The service in turnpike: uvicorn turnpike_service:app, or turnpike serve --app turnpike_service:app."""

import os

import turnpike

app = turnpike.create_app(api_keys=(os.environ["KEY"],), max_body=64 * 1024)
