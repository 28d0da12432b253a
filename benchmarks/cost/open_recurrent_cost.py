"""Measures what `turnpike export --open-recurrent` costs: runs of an opened GRU or LSTM, and of the operator.

    python -m benchmarks.cost.open_recurrent_cost

Both graphs run in one process with one thread, in turn, and return the same output. Each ratio is the median
over rounds of the time of the opened graph by that of the operator.
"""

from __future__ import annotations

import itertools
import logging
import statistics
import time

import numpy as np
import torch
from torch import Tensor, nn

from turnpike.export.input_spec import InputSpec
from turnpike.export.network import Network
from turnpike.export.prepared_graph import prepare
from turnpike.service.artifact.runtime import Runtime, open_model

INPUTS, UNITS = 64, 128
ROWS = (1, 8, 64)
STEPS = (10, 100)
ROUNDS = 41


class Recurrent(nn.Module):
    """A GRU or LSTM that returns its states."""

    def __init__(self, kind: type[nn.GRU | nn.LSTM], *, bidirectional: bool) -> None:
        super().__init__()
        self.rnn = kind(INPUTS, UNITS, batch_first=True, bidirectional=bidirectional)

    def forward(self, x: Tensor) -> Tensor:
        states: Tensor = self.rnn(x)[0]
        return states


def main() -> None:
    """Print a table of ratios."""
    logging.disable(logging.ERROR)
    torch.manual_seed(0)
    columns = list(itertools.product(STEPS, ROWS))
    print("| network | " + " | ".join(f"{steps} steps, {rows} rows" for steps, rows in columns) + " |")
    print("| --- " * (len(columns) + 1) + "|")
    for kind, bidirectional in itertools.product((nn.GRU, nn.LSTM), (False, True)):
        module = Recurrent(kind, bidirectional=bidirectional).eval()
        network = Network(
            "net", "module", (InputSpec("x", "float32", ("batch", "steps", INPUTS)),), module=module
        )
        closed, opened = (
            open_model(prepare(network, open_recurrent=open_recurrent).data)
            for open_recurrent in (False, True)
        )
        cells = [f"{ratio(closed, opened, steps, rows):.2f}" for steps, rows in columns]
        name = kind.__name__ + (", both directions" if bidirectional else "")
        print(f"| {name} | " + " | ".join(cells) + " |")


def ratio(closed: Runtime, opened: Runtime, steps: int, rows: int) -> float:
    """The time of the opened graph relative to that of the operator."""
    x = np.random.default_rng(0).normal(size=(rows, steps, INPUTS)).astype(np.float32)
    ratios = []
    for _ in range(ROUNDS):
        times = []
        for runtime in (closed, opened):
            start = time.perf_counter()
            runtime.run({"x": x}, ["output"])
            times.append(time.perf_counter() - start)
        ratios.append(times[1] / times[0])
    return statistics.median(ratios)


if __name__ == "__main__":
    main()
