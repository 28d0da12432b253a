"""Decides whether two programs are the same function of every input, in exact arithmetic.

Both run once on random elements of finite fields. Weights become elements exactly, and sums, products and
convolutions are exact. A function that is no polynomial (sigmoid, exp, 1/x, the rows of an embedding) is
replaced by a random function of its exact arguments. Equal programs give equal elements; different ones do so
only by chance, and `numbers.error_bound` says with what probability: over the random numbers that are drawn
here, not over inputs that somebody chose.

What it does not cover: rounding and overflow, which `export.parity` measures.
"""
