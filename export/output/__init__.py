"""Writes a proved graph into a model repository: complete and readable by the service, or not at all.

Takes a serialized graph and a manifest, returns the path of the file. Imports only `errors` of `export`.
"""
