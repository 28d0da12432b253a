"""Measures on batches of rows how far an exported graph strays from its network, beside PyTorch.

`rounding.measure_rounding` takes a network, its graph and open runtimes, and returns a `Rounding` or raises a
ParityError. Both sides run the same batches, and their errors against a float64 reference are compared tensor
by tensor.
Imports `trace` and `gates` of `export`.
"""
