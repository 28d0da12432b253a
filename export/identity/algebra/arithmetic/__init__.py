"""Arithmetic, elementary functions, comparisons and casts of terms.

Each class adds operators to the one before: values, functions, sums, selections, powers, and `Algebra`.
"""

from turnpike.export.identity.algebra.arithmetic.algebra import Algebra
from turnpike.export.identity.algebra.arithmetic.values import is_growing_size, is_infinite

__all__ = ["Algebra", "is_growing_size", "is_infinite"]
