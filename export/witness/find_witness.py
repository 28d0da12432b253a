"""`find_witness`: searches an input on which a network and a file differ by more than rounding explains."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import chain

import numpy as np
import onnx_ir as ir

from turnpike.export.identity.decision import Decision
from turnpike.export.network import Network
from turnpike.export.parity.batches import ProofBatch
from turnpike.export.parity.prove import choose_batch_generator
from turnpike.export.prepared_graph import PreparedGraph
from turnpike.export.witness.candidates import Candidates
from turnpike.export.witness.literals import literals
from turnpike.export.witness.mutations import mutated
from turnpike.export.witness.record import Witness
from turnpike.export.witness.sides import Sides
from turnpike.export.witness.thresholds import ThresholdSearch
from turnpike.service.artifact.runtime import Runtime

# rows of a batch, if a run of as many takes no longer than this share of the time
ROWS, RUN_SHARE = 64, 0.02
# wall-clock time may be this multiple of the CPU time that was asked for
WALL_FACTOR = 4.0
# the rows from which a search goes on, and how many of them are judged after each stage
LEADERS, JUDGED = 8, 4
# a score that rounding rarely reaches
MIN_SCORE = 2.0
# a difference of this multiple of rounding, in an output that a caller gets, needs no better one
CLEAR_TIMES = 1e4


def find_witness(
    network: Network,
    graph: PreparedGraph,
    model: ir.Model,
    runtime: Runtime,
    decision: Decision,
    *,
    seed: int = 0,
    seconds: float = 3.0,
    max_runs: int = 5000,
) -> Witness | None:
    """Search an input on which the network and a file really differ.

    None does not mean that both are the same: rounding hides many differences, and others need an input that
    no search finds.

    Args:
        network: The network.
        graph: The graph that was exported here from the network.
        model: The graph of the file. If it is `graph.model` itself, PyTorch alone guides the search.
        runtime: The file, open.
        decision: What was decided about `model`. Numbers near its first difference are tried first.
        seed: Seed of the random numbers.
        seconds: CPU time of the search, without what it needs to open the graph and to judge what it found.
        max_runs: The number of batches.
    """
    try:
        search = _Search(network, graph, model, runtime, decision, seed, seconds, max_runs)
    # a network's code and both runtimes may raise anything; without them there is nothing to show
    except Exception:
        return None
    return search.run()


@dataclass(eq=False)
class _Leader:
    """A row of a batch, and how far it differs."""

    fitness: float
    batch: ProofBatch
    row: int
    is_judged: bool = False


class _Search:
    def __init__(
        self,
        network: Network,
        graph: PreparedGraph,
        model: ir.Model,
        runtime: Runtime,
        decision: Decision,
        seed: int,
        seconds: float,
        max_runs: int,
    ) -> None:
        self._sides = Sides(network, graph, model, runtime)
        generator = choose_batch_generator(network, self._sides.reference, graph.model, seed, ROWS)
        self._numbers = literals(model, graph.model, decision.first_difference)
        self._rng = np.random.default_rng([seed, 2])
        self._leaders: list[_Leader] = []
        self._best: Witness | None = None
        self._cpu_end = time.process_time() + seconds
        self._wall_end = time.monotonic() + WALL_FACTOR * seconds
        self._runs_left = max_runs
        # the first run shows how many rows are affordable
        start = time.perf_counter()
        probe = generator.probe()
        self._sides.score(probe)
        row_seconds = (time.perf_counter() - start) / probe.rows
        affordable = int(RUN_SHARE * seconds / row_seconds)
        self._candidates = Candidates(
            generator, network.rows, self._numbers, seed, max(1, min(ROWS, affordable))
        )
        self._models = model, graph.model
        self._inputs = [spec.name for spec in network.inputs]

    def run(self) -> Witness | None:
        """Go through all stages until a clear witness is found or the time is over."""
        made = self._candidates
        for stage in (made.ordinary, made.edited, made.scaled, made.sizes, self._near_thresholds):
            self._score_all(stage())
            self._judge_leaders()
            if self._is_clear() or self._is_over():
                return self._best
        if not self._leaders and self._sides.has_export:
            # the file computes what the export does, so the export itself may differ from the network
            self._sides.forget_export()
            self._score_all(chain(made.ordinary(), made.edited(), made.sizes()))
        self._climb()
        self._judge_leaders()
        return self._best

    # ---- stages

    def _score_all(self, batches: Iterable[ProofBatch]) -> None:
        for batch in batches:
            if self._is_over():
                return
            self._score(batch)

    def _score(self, batch: ProofBatch) -> None:
        """Score a batch; if it is refused, its halves."""
        self._runs_left -= 1
        try:
            fitness = self._sides.score(batch).fitness
        # a network's code and both runtimes may raise anything
        except Exception:
            if batch.rows > 1 and not self._candidates.fixed_rows and not self._is_over():
                middle = batch.rows // 2
                self._score(batch.slice_rows(0, middle))
                self._score(batch.slice_rows(middle, batch.rows))
            return
        row = int(fitness.argmax())
        if fitness[row] > 0:
            self._leaders.append(_Leader(float(fitness[row]), batch, row))
            self._leaders.sort(key=lambda leader: leader.fitness, reverse=True)
            del self._leaders[LEADERS:]

    def _near_thresholds(self) -> Iterator[ProofBatch]:
        """Rows that bring a value inside of the file to a number that it is compared with."""
        try:
            yield from ThresholdSearch(*self._models, self._inputs, self._candidates).batches()
        # a graph that is cut off at such a value may be one that onnxruntime cannot open
        except Exception:
            return

    def _climb(self) -> None:
        """Change the leading rows, and go on from the changes that differ more."""
        while self._leaders and not self._is_over():
            leader = self._leaders[int(self._rng.integers(len(self._leaders)))]
            other = self._leaders[int(self._rng.integers(len(self._leaders)))]
            rows = self._candidates.max_rows
            arrays = mutated(
                self._row(leader), self._row(other), rows, self._numbers, self._candidates, self._rng
            )
            self._score(self._candidates.batch(leader.batch.name, arrays))

    # ---- judging

    def _judge_leaders(self) -> None:
        waiting = (leader for leader in self._leaders if not leader.is_judged)
        for leader in [leader for leader in waiting if leader.fitness >= MIN_SCORE][:JUDGED]:
            leader.is_judged = True
            single = None if self._candidates.fixed_rows else self._row(leader)
            for batch in (single, leader.batch):
                witness = None if batch is None else self._judge(batch)
                if witness is not None:
                    if self._best is None or _rank(witness) > _rank(self._best):
                        self._best = witness
                    break

    def _judge(self, batch: ProofBatch) -> Witness | None:
        try:
            return self._sides.judge(batch, batch.name)
        # a network's code and both runtimes may raise anything
        except Exception:
            return None

    def _row(self, leader: _Leader) -> ProofBatch:
        return leader.batch.slice_rows(leader.row, leader.row + 1)

    def _is_clear(self) -> bool:
        best = self._best
        return best is not None and not best.is_hidden and CLEAR_TIMES <= best.times < np.inf

    def _is_over(self) -> bool:
        return (
            self._runs_left <= 0 or time.process_time() >= self._cpu_end or time.monotonic() >= self._wall_end
        )


def _rank(witness: Witness) -> tuple[bool, bool, float]:
    """Numbers before infinities, outputs before hidden ones, then the size of the difference."""
    is_finite = bool(np.isfinite(witness.times))
    return is_finite, not witness.is_hidden, witness.times
