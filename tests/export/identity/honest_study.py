"""Decides about honest networks: how many are called identical, and how long a decision takes.

With --export, they are exported as by a user, to find those that are refused. With --runtime, it is decided
whether onnxruntime's optimizer keeps their function.

python -m tests.export.identity.honest_study --only attention --seeds 100
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
import warnings
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from statistics import median

import torch

from tests.export.identity.honest import (
    attention,
    dense,
    gates,
    generated,
    images,
    kinds,
    positions,
    published,
    sequences,
    writes,
)
from tests.export.identity.honest.written import Honest
from tests.highways import carries, convolution, fused, recurrent
from tests.highways import dense as dense_examples
from tests.highways.edge_cases import Public, SharedBias, SharedGate, SharedLogit, Stream, TanhGate
from tests.highways.honest import RandomHighway
from tests.highways.impostors import SHAPE, AllImpostors
from tests.highways.spellings import UNITS, Spelled
from turnpike.export.graph_identity import decide_identity
from turnpike.export.identity.decision import Decision, Verdict
from turnpike.export.optimized.decide_optimized import decide_optimized
from turnpike.export.options import SourceOptions
from turnpike.export.pipeline import export_model
from turnpike.export.prepared_graph import prepare
from turnpike.export.sources.checkpoint import network_input
from turnpike.export.sources.load import load_source
from turnpike.models.networks.families import build_network
from turnpike.models.training.presets import PRESETS
from turnpike.service.artifact.manifest import Manifest

TABLES = (dense, gates, kinds, sequences, attention, positions, images, published, generated, writes)
OWN = [honest for table in TABLES for honest in table.NETWORKS]


@dataclass(frozen=True)
class Study:
    """The decision about a network, and what it took in seconds of CPU.

    `ulps` is the largest distance of a constant that onnxruntime has computed.
    """

    decision: Decision
    seconds: float
    ulps: float = 0.0


def study(honest: Honest, seed: int = 7, *, runtime: bool = False) -> Study:
    """Export a network and decide about its graph, or about what onnxruntime makes of that."""
    torch.manual_seed(seed)
    net = honest.make().eval()
    network = load_source(net, SourceOptions(inputs=honest.inputs, name="net"))
    graph = prepare(network, honest.opset, open_recurrent=honest.open_recurrent, plain=honest.plain)
    chosen = graph.plain if graph.plain is not None else graph
    start = time.process_time()
    if runtime:
        optimized = decide_optimized(chosen.data)
        return Study(optimized.decision, time.process_time() - start, optimized.ulps)
    decision = decide_identity(network, chosen, chosen.model)
    return Study(decision, time.process_time() - start)


def export(honest: Honest, seed: int = 7) -> Manifest:
    """Export a network as a user does."""
    torch.manual_seed(seed)
    net = honest.make().eval()
    options = {"opset": honest.opset, "open_recurrent": honest.open_recurrent, "plain": honest.plain}
    with tempfile.TemporaryDirectory() as folder:
        return export_model(net, folder, name="net", inputs=honest.inputs, **options).manifest


def of_presets() -> Iterator[Honest]:
    for name, preset in PRESETS.items():
        spec = str(network_input(build_network(preset.config)))
        yield Honest(f"preset {name}", lambda config=preset.config: build_network(config), (spec,))


def of_seeds(count: int) -> Iterator[Honest]:
    """Random highways, and highways that are spelled at random."""
    for seed in range(count):
        spec = RandomHighway(seed).spec
        yield Honest(f"random highway {seed}", lambda seed=seed: RandomHighway(seed), (spec,))
        spec = f"x:float32[batch,{UNITS}]"
        yield Honest(f"spelled highway {seed}", lambda seed=seed: Spelled(seed), (spec,))
        yield Honest(f"near miss {seed}", lambda seed=seed: Spelled(seed, near_misses=True), (spec,))


def of_examples() -> Iterator[Honest]:
    """The networks of tests/highways."""
    lists = [module.ROWS + module.TIMES for module in (dense_examples, fused, carries)]
    lists += [carries.EXAMPLES, convolution.EXAMPLES, recurrent.EXAMPLES]
    for example in (example for examples in lists for example in examples):
        spec = f"x:float32[batch,{','.join(map(str, example.shape))}]"
        yield Honest(f"example {example.name}", example.make, (spec,))
    for make in (SharedBias, Stream, TanhGate, SharedLogit, SharedGate, Public):
        yield Honest(f"edge case {make.__name__}", make, ("x:float32[batch,4]",))
    spec = f"x:float32[batch,{','.join(map(str, SHAPE))}]"
    yield Honest("impostors", AllImpostors, (spec,))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", default="", help="a part of the names")
    parser.add_argument("--seeds", type=int, default=100)
    parser.add_argument("--export", action="store_true", help="export each network, and show who is refused")
    parser.add_argument("--runtime", action="store_true", help="decide about onnxruntime's graphs")
    options = parser.parse_args()
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    counts: Counter[str] = Counter()
    seconds: dict[str, float] = {}
    ulps: dict[str, float] = {}
    for honest in [*OWN, *of_examples(), *of_presets(), *of_seeds(options.seeds)]:
        if options.only not in honest.name:
            continue
        start = time.process_time()
        try:
            if options.export:
                identity = export(honest).identity
                counts["exported" if identity is None else identity.verdict] += 1
                seconds[honest.name] = time.process_time() - start
                continue
            result = study(honest, runtime=options.runtime)
        except Exception as error:
            counts["not exported"] += 1
            sys.stdout.write(f"{honest.name}: not exported: {str(error).splitlines()[0][:300]}\n")
            sys.stdout.flush()
            continue
        counts[result.decision.verdict] += 1
        seconds[honest.name], ulps[honest.name] = result.seconds, result.ulps
        if result.decision.verdict is not Verdict.IDENTICAL:
            sys.stdout.write(f"{honest.name}: {result.decision} ({result.seconds:.1f} s)\n")
        sys.stdout.flush()
    sys.stdout.write(", ".join(f"{count} {name}" for name, count in counts.items()) + "\n")
    if seconds:
        if options.runtime:
            furthest = max(ulps, key=ulps.__getitem__)
            rounded = sum(distance > 0 for distance in ulps.values())
            sys.stdout.write(
                f"rounded constants in {rounded}, up to {ulps[furthest]:.2f} ulps ({furthest})\n"
            )
        slowest = max(seconds, key=seconds.__getitem__)
        sys.stdout.write(
            f"CPU seconds: median {median(seconds.values()):.2f}, most {seconds[slowest]:.1f} ({slowest})\n"
        )


if __name__ == "__main__":
    main()
