"""Finds the settings that serve a model best on this machine, by serving the model and loading the server."""
