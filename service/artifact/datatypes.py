"""Datatypes of the Open Inference Protocol, by NumPy's names for them."""

from __future__ import annotations

import numpy as np

# the protocol's datatype for strings, which NumPy has no fixed-size dtype for
BYTES = "BYTES"

DATATYPES = {
    "bool": "BOOL",
    "uint8": "UINT8",
    "uint16": "UINT16",
    "uint32": "UINT32",
    "uint64": "UINT64",
    "int8": "INT8",
    "int16": "INT16",
    "int32": "INT32",
    "int64": "INT64",
    "float16": "FP16",
    "float32": "FP32",
    "float64": "FP64",
}

# keyed by dtype, because computing `dtype.name` takes longer than encoding a small response
DATATYPE_BY_DTYPE = {np.dtype(name): datatype for name, datatype in DATATYPES.items()}

# the protocol sends numbers in little-endian order, whatever the byte order of this machine
WIRE_DTYPES = {name: np.dtype(name).newbyteorder("<") for name in DATATYPES}
