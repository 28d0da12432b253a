"""Counts false alarms over honest networks of which nothing is decided, and planted faults that are caught.

    python -m tests.export.parity.honest_study --seeds 500 --faults 60

Both counts start at seed 0. An ill-conditioned network, for which parity means nothing, is neither.
"""

from __future__ import annotations

import argparse
import sys
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import onnx_ir as ir
import torch

from tests.highways.faults import FAULTS
from tests.highways.honest import RandomHighway
from turnpike.export.errors import ParityError
from turnpike.export.input_spec import parse_inputs
from turnpike.export.network import Network
from turnpike.export.parity.rounding import Rounding, measure_rounding
from turnpike.export.prepared_graph import PreparedGraph, prepare
from turnpike.service.artifact.runtime import open_model


@dataclass(frozen=True)
class Subject:
    """A random network and its graph."""

    net: RandomHighway
    network: Network
    graph: PreparedGraph

    def prove(self) -> Rounding:
        """Prove the graph as it is, on the rows of the network's seed."""
        return self._prove(self.graph.model)

    def prove_faulty(self, change: Callable[[ir.Model], None]) -> Rounding:
        """Prove a copy of the graph with a fault."""
        model = ir.from_proto(ir.to_proto(self.graph.model))
        change(model)
        return self._prove(model)

    def _prove(self, model: ir.Model) -> Rounding:
        runtime = open_model(ir.to_proto(model).SerializeToString())
        origins = self.graph.gates.origins
        return measure_rounding(
            self.network, self.graph.traced, model, origins, runtimes=[runtime], seed=self.net.seed
        )


def random_subject(seed: int) -> Subject:
    net = RandomHighway(seed)
    network = Network("honest", "module", parse_inputs([net.spec]), module=net)
    return Subject(net, network, prepare(network))


def verdict(run: Callable[[], object]) -> str:
    """`passed`, `ill-conditioned` or the reason for a refusal."""
    try:
        run()
    except ParityError as error:
        return "ill-conditioned" if "ill-conditioned" in str(error) else str(error)
    return "passed"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=500)
    parser.add_argument("--faults", type=int, default=60)
    parser.add_argument("--first", type=int, default=0)
    options = parser.parse_args()
    torch.set_num_threads(1)
    counts: Counter[str] = Counter()
    caught: Counter[str] = Counter()
    faulty = 0
    for seed in range(options.first, options.first + options.seeds):
        subject = random_subject(seed)
        honest = verdict(subject.prove)
        counts[honest if honest in ("passed", "ill-conditioned") else "false alarms"] += 1
        if honest != "passed":
            sys.stdout.write(f"{subject.net}: {honest}\n")
            sys.stdout.flush()
        elif seed < options.first + options.faults:
            faulty += 1
            for name, change in FAULTS.items():
                caught[name] += verdict(partial(subject.prove_faulty, change)) != "passed"
    sys.stdout.write(", ".join(f"{name}: {count}" for name, count in counts.items()) + "\n")
    for name, count in caught.items():
        sys.stdout.write(f"{name}: caught in {count} of {faulty} networks\n")


if __name__ == "__main__":
    main()
