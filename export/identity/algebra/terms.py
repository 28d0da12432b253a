"""The values of an exact run, for all modules that compute with them."""

from turnpike.export.identity.algebra.arithmetic.terms import (
    NO_BOUND,
    Array,
    Known,
    SizeLedger,
    Sizes,
    Term,
    UndecidedError,
    Value,
    digest_of,
    joint_kind,
    kind_of,
    known,
    known_integers,
    shape_of,
)

__all__ = [
    "NO_BOUND",
    "Array",
    "Known",
    "SizeLedger",
    "Sizes",
    "Term",
    "UndecidedError",
    "Value",
    "digest_of",
    "joint_kind",
    "kind_of",
    "known",
    "known_integers",
    "shape_of",
]
