"""Honest networks in the way people write them. Their exported graphs are the same functions."""
