"""Score all rows of a file: send them to a served model in batches, and save its outputs as .npy.

python examples/score_a_file.py rows.npy scores.npy [--url http://127.0.0.1:8000] [--model digits-10]
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np

from turnpike import Client


def main() -> None:
    parser = argparse.ArgumentParser(description="Score all rows of a file.")
    parser.add_argument("rows", type=Path, help=".npy, or .npz with an array named x")
    parser.add_argument("scores", type=Path, help=".npy to write")
    parser.add_argument("--url", default="http://127.0.0.1:8000")
    parser.add_argument("--model", default="digits-10")
    parser.add_argument("--batch", type=int, default=128, help="rows per request")
    options = parser.parse_args()

    loaded = np.load(options.rows)
    rows = loaded if options.rows.suffix == ".npy" else loaded["x"]
    batches = [rows[start : start + options.batch] for start in range(0, len(rows), options.batch)]
    with Client(options.url) as client:
        # the first output of each batch
        answers = [next(iter(client.infer(options.model, batch).values())) for batch in batches]
    scores = np.concatenate(answers)
    np.save(options.scores, scores)
    print(f"scored {len(rows)} rows in {len(batches)} requests: {options.scores}, shape {scores.shape}")


if __name__ == "__main__":
    main()
