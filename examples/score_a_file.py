"""Score all rows of a file: send them to a served model in batches, and save its outputs as .npy.

python examples/score_a_file.py rows.npy scores.npy [--url http://127.0.0.1:8000] [--model digits-10]
"""

from __future__ import annotations

import argparse
import json
import urllib.request
from pathlib import Path

import numpy as np

# names of NumPy types in the protocol
DATATYPES = {"float32": "FP32", "float64": "FP64", "int32": "INT32", "int64": "INT64", "uint8": "UINT8"}


def infer(url: str, name: str, rows: np.ndarray) -> np.ndarray:
    """One request in the binary form of the protocol: JSON, then the bytes of the tensor; the same back."""
    tensor = {
        "name": name,
        "shape": rows.shape,
        "datatype": DATATYPES[rows.dtype.name],
        "parameters": {"binary_data_size": rows.nbytes},
    }
    header = json.dumps({"inputs": [tensor], "parameters": {"binary_data_output": True}}).encode()
    request = urllib.request.Request(url, header + rows.tobytes())
    request.add_header("Content-Type", "application/octet-stream")
    request.add_header("Inference-Header-Content-Length", str(len(header)))
    with urllib.request.urlopen(request) as response:
        length = int(response.headers["Inference-Header-Content-Length"])
        body = response.read()
    output = json.loads(body[:length])["outputs"][0]
    dtype = next(dtype for dtype, datatype in DATATYPES.items() if datatype == output["datatype"])
    return np.frombuffer(body, dtype, offset=length).reshape(output["shape"])


def main() -> None:
    parser = argparse.ArgumentParser(description="Score all rows of a file.")
    parser.add_argument("rows", type=Path, help=".npy, or .npz with an array named x")
    parser.add_argument("scores", type=Path, help=".npy to write")
    parser.add_argument("--url", default="http://127.0.0.1:8000")
    parser.add_argument("--model", default="digits-10")
    parser.add_argument("--batch", type=int, default=128, help="rows per request")
    options = parser.parse_args()

    # what the model takes: name, type and shape of its input, the number of rows first
    model = f"{options.url}/v2/models/{options.model}"
    with urllib.request.urlopen(model) as response:
        (expected,) = json.load(response)["inputs"]
    dtype = next(dtype for dtype, datatype in DATATYPES.items() if datatype == expected["datatype"])

    loaded = np.load(options.rows)
    rows = (loaded if options.rows.suffix == ".npy" else loaded["x"]).astype(dtype)
    rows = rows.reshape(len(rows), *expected["shape"][1:])
    batches = [rows[start : start + options.batch] for start in range(0, len(rows), options.batch)]
    scores = np.concatenate([infer(f"{model}/infer", expected["name"], batch) for batch in batches])
    np.save(options.scores, scores)
    print(f"scored {len(rows)} rows in {len(batches)} requests: {options.scores}, shape {scores.shape}")


if __name__ == "__main__":
    main()
