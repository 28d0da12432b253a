"""Whole networks: a config comes in, a module that maps raw rows to logits goes out.

Imports `models.layers`, but neither data nor training.
"""
