"""Depth studies: train plain, residual and highway networks at several depths and compare them.

Imports `models.training` and `models.plots`.
"""
