"""Runs on a GPU what needs one: proofs, the answers of the service, and speed.

In: a machine with an NVIDIA GPU. Out: a results file, and the figures of docs/how-to/cuda.md.
"""
