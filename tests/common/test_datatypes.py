"""Datatypes of the Open Inference Protocol."""

from __future__ import annotations

import numpy as np

from turnpike.common.datatypes import DATATYPE_BY_DTYPE, DATATYPES, DTYPE_BY_DATATYPE, WIRE_DTYPES


def test_every_dtype_has_its_own_datatype() -> None:
    assert len(set(DATATYPES.values())) == len(DATATYPES) == 12
    assert DATATYPES["float32"] == "FP32"
    assert DATATYPES["bool"] == "BOOL"


def test_numbers_are_little_endian() -> None:
    """Wire dtypes have the same kind and size, with the lowest byte first."""
    for name, dtype in WIRE_DTYPES.items():
        assert dtype.name == name
        assert dtype.newbyteorder("<") == dtype
        assert DTYPE_BY_DATATYPE[DATATYPES[name]] == dtype


def test_arrays_of_models_and_of_the_wire_have_a_datatype() -> None:
    for name, datatype in DATATYPES.items():
        assert DATATYPE_BY_DTYPE[np.dtype(name)] == DATATYPE_BY_DTYPE[WIRE_DTYPES[name]] == datatype
