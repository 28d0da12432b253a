"""`find_witness`: searches an input on which a network and a file differ by more than rounding explains."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from itertools import chain

import numpy as np
import onnx_ir as ir

from turnpike.export.identity.decision import Decision
from turnpike.export.network import Network
from turnpike.export.parity.batches import BatchGenerator, ProofBatch
from turnpike.export.parity.prove import choose_batch_generator
from turnpike.export.prepared_graph import PreparedGraph
from turnpike.export.witness.candidates import Candidates
from turnpike.export.witness.literals import literals
from turnpike.export.witness.mutations import mutated
from turnpike.export.witness.record import Witness
from turnpike.export.witness.sides import FileRefusesError, Sides
from turnpike.export.witness.thresholds import ThresholdSearch
from turnpike.service.artifact.runtime import Runtime

# rows of a batch, if a run of as many takes no longer than this share of the time
ROWS, RUN_SHARE = 64, 0.02
# share of the time after which nothing more is tried, and what was found is judged
SEARCH_SHARE = 0.7
# wall-clock time may be this multiple of the CPU time that was asked for
WALL_FACTOR = 4.0
# the rows from which a search goes on, and how many of them are judged after each stage
LEADERS, JUDGED = 8, 3
# a score that rounding rarely reaches
MIN_SCORE = 2.0
# a difference of this multiple of rounding, in an output that a caller gets, needs no better one
CLEAR_TIMES = 1e4
# a row is judged alone if it has this share of its score without its neighbors, too, or this score
ALONE_SHARE, ALONE_SCORE = 0.5, 30.0


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
        self._refused: ProofBatch | None = None
        self._budget = _Budget(seconds, max_runs)
        rows = max(1, min(ROWS, int(RUN_SHARE * seconds / self._row_seconds(generator))))
        self._candidates = Candidates(generator, network.rows, self._numbers, seed, rows)
        self._models = model, graph.model
        self._inputs = [spec.name for spec in network.inputs]

    def run(self) -> Witness | None:
        """Go through all stages until a clear witness is found or the time is over."""
        made = self._candidates
        for stage in (made.ordinary, made.edited, made.scaled, made.sizes, self._near_thresholds):
            self._score_all(stage())
            self._judge_leaders()
            if self._is_clear():
                return self._best
        if not self._leaders and self._sides.has_export:
            # the file computes what the export does, so the export itself may differ from the network
            self._sides.forget_export()
            self._score_all(chain(made.ordinary(), made.edited(), made.sizes()))
        self._climb()
        self._judge_leaders()
        if self._best is None and self._refused is not None:
            return self._judge(self._refused, self._refused.name)
        return self._best

    def _row_seconds(self, generator: BatchGenerator) -> float:
        """How long a row takes; the first run is slower than later ones."""
        probe = generator.probe()
        start = time.perf_counter()
        # a network's code and both runtimes may raise anything
        with suppress(Exception):
            self._sides.score(probe)
            start = time.perf_counter()
            self._sides.score(probe)
        return (time.perf_counter() - start) / probe.rows

    # ---- stages

    def _score_all(self, batches: Iterable[ProofBatch]) -> None:
        for batch in batches:
            if self._budget.is_searched():
                return
            self._score(batch)

    def _score(self, batch: ProofBatch) -> None:
        """Score a batch; if it is refused, its halves."""
        self._budget.runs -= 1
        can_split = batch.rows > 1 and not self._candidates.fixed_rows
        try:
            fitness = self._sides.score(batch).fitness
        # a network's code and both runtimes may raise anything
        except Exception as error:
            if isinstance(error, FileRefusesError) and not can_split:
                self._refused = self._refused or batch
            if can_split and not self._budget.is_searched():
                middle = batch.rows // 2
                for start, stop in ((0, middle), (middle, batch.rows)):
                    self._score(replace(batch.slice_rows(start, stop), row_names=batch.row_names[start:stop]))
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
        while self._leaders and not self._budget.is_searched():
            leader = self._leaders[int(self._rng.integers(len(self._leaders)))]
            other = self._leaders[int(self._rng.integers(len(self._leaders)))]
            rows = self._candidates.max_rows
            arrays = mutated(
                self._row(leader), self._row(other), rows, self._numbers, self._candidates, self._rng
            )
            self._score(self._candidates.batch("found by changes of random rows", arrays))

    # ---- judging

    def _judge_leaders(self) -> None:
        waiting = (leader for leader in self._leaders if not leader.is_judged)
        for leader in [leader for leader in waiting if leader.fitness >= MIN_SCORE][:JUDGED]:
            # at least one is judged
            if self._best is not None and self._budget.is_over():
                return
            leader.is_judged = True
            witness = self._judge(
                self._row(leader) if self._is_alone(leader) else leader.batch, _name(leader)
            )
            if witness is not None and (self._best is None or _rank(witness) > _rank(self._best)):
                self._best = witness

    def _judge(self, batch: ProofBatch, description: str) -> Witness | None:
        try:
            return self._sides.judge(batch, description)
        # a network's code and both runtimes may raise anything
        except Exception:
            return None

    def _is_alone(self, leader: _Leader) -> bool:
        """Whether a row differs without the rows beside it, too."""
        if self._candidates.fixed_rows:
            return False
        try:
            fitness = self._sides.score(self._row(leader)).fitness
        # a network's code and both runtimes may raise anything
        except Exception:
            return False
        return bool(fitness.max() >= min(ALONE_SHARE * leader.fitness, ALONE_SCORE))

    def _row(self, leader: _Leader) -> ProofBatch:
        return leader.batch.slice_rows(leader.row, leader.row + 1)

    def _is_clear(self) -> bool:
        best = self._best
        return (
            best is not None
            and best.failure is None
            and not best.is_hidden
            and CLEAR_TIMES <= best.times < np.inf
        )


class _Budget:
    """What is left of the time and of the runs."""

    def __init__(self, seconds: float, runs: int) -> None:
        self.runs = runs
        self._seconds = seconds
        self._cpu, self._wall = time.process_time(), time.monotonic()

    def is_searched(self) -> bool:
        """Whether no further candidate is tried."""
        return self.runs <= 0 or self._share() >= SEARCH_SHARE

    def is_over(self) -> bool:
        """Whether nothing more is judged."""
        return self._share() >= 1

    def _share(self) -> float:
        cpu, wall = time.process_time() - self._cpu, time.monotonic() - self._wall
        return max(cpu, wall / WALL_FACTOR) / self._seconds


def _name(leader: _Leader) -> str:
    names = leader.batch.row_names
    return names[leader.row] if names else leader.batch.name


def _rank(witness: Witness) -> tuple[bool, bool, bool, float]:
    """Values before failures, numbers before infinities, outputs before hidden ones; then the difference."""
    is_finite = bool(np.isfinite(witness.times))
    return witness.failure is None, is_finite, not witness.is_hidden, witness.times
