"""Arithmetic, elementary functions, comparisons and casts of terms.

Each class adds operators to the one before: values, functions, sums, selections, powers, and `Algebra`.
"""

from turnpike.export.identity.algebra.arithmetic.algebra import Algebra as Algebra
from turnpike.export.identity.algebra.arithmetic.values import is_growing_size as is_growing_size
from turnpike.export.identity.algebra.arithmetic.values import is_infinite as is_infinite
from turnpike.export.identity.algebra.arithmetic.values import size_of as size_of
