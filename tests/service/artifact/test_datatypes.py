"""The protocol's names of datatypes."""

from __future__ import annotations

from service.artifact.datatypes import DATATYPES, WIRE_DTYPES
from service.artifact.runtime import DTYPE_BY_ONNX_TYPE


def test_whatever_a_model_may_have_has_a_name() -> None:
    """Every dtype that a model file can be opened with can be said on the wire, and no two alike."""
    assert set(DATATYPES) == set(DTYPE_BY_ONNX_TYPE.values())
    assert len(set(DATATYPES.values())) == len(DATATYPES)
    assert DATATYPES["float32"] == "FP32"
    assert DATATYPES["bool"] == "BOOL"


def test_numbers_are_little_endian() -> None:
    """The dtypes of the wire are of the same kind and size, with the lowest byte first."""
    for name, dtype in WIRE_DTYPES.items():
        assert dtype.name == name
        assert dtype.byteorder in "<|" or dtype.newbyteorder("<") == dtype
