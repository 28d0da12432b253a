"""A client of the service without any library: a prediction, its gates, and what closing each layer changes.

turnpike serve &
python examples/gates_client.py [URL] [MODEL]
"""

from __future__ import annotations

import json
import sys
import urllib.request
from typing import Any


def call(url: str, body: dict[str, Any] | None = None) -> Any:
    """GET without a body, POST with one."""
    data = None if body is None else json.dumps(body).encode()
    with urllib.request.urlopen(urllib.request.Request(url, data)) as response:
        return json.load(response)


def main(url: str = "http://127.0.0.1:8000", model: str = "digits-10") -> None:
    base = f"{url}/v2/models/{model}"

    # a sample row from the model's file, in the form that infer, gates and lesion accept
    sample = call(f"{base}/samples")["samples"][0]
    inputs = sample["inputs"]
    print(f"a row with the label {sample['label']}")

    # gates: the same answer as infer, and the statistics of each transform gate
    answer = call(f"{base}/gates", {"inputs": inputs})
    print("outputs:", [round(value, 2) for value in answer["outputs"][0]["data"]])
    for gate in answer["gates"]:
        bar = "#" * round(40 * gate["mean"])
        print(f"  {gate['name']:28} mean T {gate['mean']:.2f} {bar}")
    route = answer["route"]
    print(f"effective depth: {route['effective_depth'][0]:.2f} of {route['layers']} layers")

    # lesion: close one layer at a time, and see how the probability of the answer changes
    curve = call(f"{base}/lesion", {"inputs": inputs, "curve": True})["curve"]
    for entry in curve["layers"]:
        note = "  another class" if entry["flipped"] else ""
        print(f"  without layer {entry['layer']}: {entry['change']:+.4f}{note}")


if __name__ == "__main__":
    main(*sys.argv[1:])
