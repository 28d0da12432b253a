"""A prediction for a picture, its gates, and what closing each layer changes.

turnpike serve &
python examples/gates_client.py [URL] [MODEL]
"""

from __future__ import annotations

import sys

import numpy as np

from turnpike import Client

# a handwritten zero, row by row
DIGIT = np.array(
    [
        [0, 0, 5, 13, 9, 1, 0, 0],
        [0, 0, 13, 15, 10, 15, 5, 0],
        [0, 3, 15, 2, 0, 11, 8, 0],
        [0, 4, 12, 0, 0, 8, 8, 0],
        [0, 5, 8, 0, 0, 9, 8, 0],
        [0, 4, 11, 0, 1, 12, 7, 0],
        [0, 2, 14, 5, 10, 12, 0, 0],
        [0, 0, 6, 13, 10, 0, 0, 0],
    ]
)


def main(url: str = "http://127.0.0.1:8000", model: str = "digits-10") -> None:
    rows = DIGIT.reshape(1, 64)
    with Client(url) as client:
        predictions = client.predict(model, rows)
        print(f"a {predictions['label'][0]}, with the probability {predictions['probability'][0]:.4f}")

        # gates: the statistics of each transform gate, and the way of the row through the layers
        gates = client.gates(model, rows)
        print(gates)
        print(f"effective depth: {gates.route['effective_depth'][0]:.2f} of {gates.route['layers']} layers")

        # lesions: close one layer at a time, and see how the probability of the answer changes
        for layer in np.unique(gates["layer"]):
            lesion = client.lesion(model, rows, close=[layer])
            note = "  another class" if len(lesion.changed) else ""
            print(f"without layer {layer}: {lesion.report['change']:+.1e}{note}")


if __name__ == "__main__":
    main(*sys.argv[1:])
