"""Training: a run plan (network, data, recipe, folder) comes in, checkpoints go out.

Imports `models.networks` and `models.data`, but neither plots nor studies.
"""
