"""Datatypes of the Open Inference Protocol."""

from __future__ import annotations

from turnpike.service.artifact.datatypes import DATATYPES, WIRE_DTYPES
from turnpike.service.artifact.runtime import DTYPE_BY_ONNX_TYPE


def test_every_dtype_of_a_model_has_a_datatype() -> None:
    """Every dtype that a model can have has its own datatype on the wire."""
    assert set(DATATYPES) == set(DTYPE_BY_ONNX_TYPE.values())
    assert len(set(DATATYPES.values())) == len(DATATYPES)
    assert DATATYPES["float32"] == "FP32"
    assert DATATYPES["bool"] == "BOOL"


def test_numbers_are_little_endian() -> None:
    """Wire dtypes have the same kind and size, with the lowest byte first."""
    for name, dtype in WIRE_DTYPES.items():
        assert dtype.name == name
        assert dtype.byteorder in "<|" or dtype.newbyteorder("<") == dtype
