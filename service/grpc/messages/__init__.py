"""Messages of gRPC: the .proto files, and the requests and responses of inference as bytes.

The .proto files are for clients too. `make protos` compiles them after a change.
"""
