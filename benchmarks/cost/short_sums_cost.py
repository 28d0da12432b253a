"""Measures what the short form of gated sums saves: runs of two networks in both forms.

    python -m benchmarks.cost.short_sums_cost

The long form is T H + (1 - T) x, the short one x + T (H - x). Both files have hidden outputs and run in one
process with one thread, in turn. Each ratio is that of the shortest times.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from benchmarks.contestants.export_network import build
from benchmarks.contestants.networks import NETWORK_L, NETWORK_S, OUTPUT_NAME
from turnpike.export.network import Network
from turnpike.export.prepared_graph import prepare, with_short_sums
from turnpike.export.sources.checkpoint import network_input
from turnpike.service.artifact.runtime import Runtime, open_model

# a layer that carries the network's input keeps the long form
NETWORKS = (NETWORK_S, replace(NETWORK_L, entry="plain"))
ROWS = (1, 8, 32)
# time for one cell of the table
SECONDS = 3.0


def main() -> None:
    """Print a table of times, and ratios of the short form to the long one."""
    logging.disable(logging.ERROR)
    print("| network | " + " | ".join(f"batch {rows} | gates and layers" for rows in ROWS) + " |")
    print("| --- " + "| ---: " * (2 * len(ROWS)) + "|")
    for network in NETWORKS:
        module = build(network)
        spec = network_input(module)
        graph = prepare(Network(network.name, "module", (spec,), module=module))
        short = with_short_sums(graph)
        if short is None:
            raise ValueError(f"{network.name}: expected gated sums that can be shortened, got none")
        runtimes = [open_model(form.data) for form in (graph, short)]
        cells = []
        for rows in ROWS:
            x = np.random.default_rng(0).standard_normal((rows, network.inputs)).astype(np.float32)
            for outputs in ([OUTPUT_NAME], list(graph.gates.origins)):
                long_time, short_time = shortest_times(runtimes, spec.name, x, outputs)
                cells.append(f"{1e6 * short_time:,.1f} µs ({short_time / long_time:.3f})")
        print(f"| {network.layers} layers of {network.width} | " + " | ".join(cells) + " |", flush=True)


def shortest_times(
    runtimes: Sequence[Runtime], name: str, x: np.ndarray, outputs: Sequence[str]
) -> list[float]:
    """The shortest run of each file, in seconds."""
    times = [float("inf")] * len(runtimes)
    end = time.perf_counter() + SECONDS
    while time.perf_counter() < end:
        for number, runtime in enumerate(runtimes):
            start = time.perf_counter()
            runtime.run({name: x}, outputs)
            times[number] = min(times[number], time.perf_counter() - start)
    return times


if __name__ == "__main__":
    main()
