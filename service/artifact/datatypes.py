"""The datatypes of the Open Inference Protocol, by the names that NumPy has for them."""

from __future__ import annotations

import numpy as np

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

# NumPy takes longer to tell a name than an answer takes to write
DATATYPE_BY_DTYPE = {np.dtype(name): datatype for name, datatype in DATATYPES.items()}

# on the wire numbers are little-endian, whatever the machine
WIRE_DTYPES = {name: np.dtype(name).newbyteorder("<") for name in DATATYPES}
