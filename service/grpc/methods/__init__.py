"""The methods of the gRPC services: each takes the message of a call, and returns the one of its answer."""
