"""Gates, plain, residual and highway layers: PyTorch modules that map tensors to tensors.

Imports only `models.checks` and `models.errors`.
"""
