"""The routes of the HTTP API, and the application that joins them: requests come in, responses go out."""
