"""Proves that an exported graph computes what the network computes, as accurately as PyTorch does.

`prove.prove` takes a network, its graph and open runtimes, and returns a `Proof` or raises a ParityError.
Both sides run the same batches, and their errors against a float64 reference are compared tensor by tensor.
Imports `trace` and `gates` of `export`.
"""
