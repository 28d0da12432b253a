"""The service in an application of somebody else: as FastAPI routes, started by its lifespan or a request."""
