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

# the protocol sends numbers in little-endian order, whatever the byte order of this machine
WIRE_DTYPES = {name: np.dtype(name).newbyteorder("<") for name in DATATYPES}
DTYPE_BY_DATATYPE = {datatype: WIRE_DTYPES[name] for name, datatype in DATATYPES.items()}

# Keyed by dtype, because computing `dtype.name` takes longer than encoding a small response. On a big-endian
# machine, arrays of a model and arrays for the wire have different dtypes.
DATATYPE_BY_DTYPE = {
    dtype: datatype for name, datatype in DATATYPES.items() for dtype in (np.dtype(name), WIRE_DTYPES[name])
}
