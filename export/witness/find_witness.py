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
from turnpike.export.parity.rounding import choose_batch_generator
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
WALL_FACTOR = 3.0
# the rows from which a search goes on, and how many of them are judged after each stage: of those that differ
# in an output that a caller gets, and of those that differ in a hidden one
LEADERS, JUDGED = 5, 2
# a score that rounding rarely reaches
MIN_SCORE = 2.0
# the largest number that a cell gets without an export to compare with
MAX_TAME = 100.0
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
    """A row of a batch, and how far it differs: in an output that a caller gets, or in a hidden one."""

    score: float
    is_hidden: bool
    batch: ProofBatch
    row: int
    is_judged: bool = False

    @property
    def name(self) -> str:
        """What sort of row it is."""
        return self.batch.row_names[self.row] if self.batch.row_names else self.batch.name

    def alone(self) -> ProofBatch:
        """The row without its neighbors."""
        return self.batch.slice_rows(self.row, self.row + 1)


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
        self._has_judged = False
        self._best: Witness | None = None
        self._refused: ProofBatch | None = None
        self._budget = _Budget(seconds, max_runs)
        rows = max(1, min(ROWS, int(RUN_SHARE * seconds / self._row_seconds(generator))))
        self._candidates = Candidates(generator, network.rows, self._numbers, seed, rows)
        self._models = model, graph.model
        self._inputs = [spec.name for spec in network.inputs]

    def run(self) -> Witness | None:
        """Go through all stages until a clear witness is found or the time is over."""
        if self._sides.has_export:
            self._search_beside_export()
        if not self._leaders:
            # file and export compute the same, so the export itself may differ from the network
            self._sides.forget_export()
            self._search_tame_rows()
        if self._best is None and self._refused is not None:
            return self._judge(self._refused, self._refused.name)
        return self._best

    # ---- stages

    def _search_beside_export(self) -> None:
        """Try all candidates. Arithmetic explains little: both run in onnxruntime."""
        made = self._candidates
        for stage in (
            *(made.tame, made.stress, made.sizes_of_graph, made.edited, made.scaled),
            *(self._near_thresholds, made.small_sizes),
        ):
            self._score_all(stage())
            self._judge_leaders()
            if self._is_clear():
                return
        self._climb()
        self._judge_leaders()

    def _search_tame_rows(self) -> None:
        """Try candidates like data: on others, PyTorch and onnxruntime overflow in different places."""
        made = self._candidates
        self._score_all(chain(made.tame(), made.edited(MAX_TAME), made.small_sizes()))
        self._judge_leaders()

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
            score = self._sides.score(batch)
        # a network's code and both runtimes may raise anything
        except Exception as error:
            if isinstance(error, FileRefusesError):
                self._refused = min(self._refused or batch, batch, key=lambda refused: refused.rows)
            if can_split and not self._budget.is_searched():
                middle = batch.rows // 2
                for start, stop in ((0, middle), (middle, batch.rows)):
                    self._score(replace(batch.slice_rows(start, stop), row_names=batch.row_names[start:stop]))
            return
        for is_hidden, scores in ((False, score.public), (True, score.hidden)):
            row = int(scores.argmax())
            if scores[row] > 0:
                self._leaders.append(_Leader(float(scores[row]), is_hidden, batch, row))
        self._leaders.sort(key=lambda leader: leader.score, reverse=True)
        self._leaders = [*self._of_kind(False)[:LEADERS], *self._of_kind(True)[:LEADERS]]

    def _of_kind(self, is_hidden: bool) -> list[_Leader]:
        """The leaders that differ in hidden outputs, or the others; the best first."""
        return [leader for leader in self._leaders if leader.is_hidden == is_hidden]

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
            arrays = mutated(leader.alone(), other.alone(), rows, self._numbers, self._candidates, self._rng)
            self._score(self._candidates.batch("found by changes of random rows", arrays))

    # ---- judging

    def _judge_leaders(self) -> None:
        waiting: list[_Leader] = []
        for is_hidden in (False, True):
            leaders = [leader for leader in self._of_kind(is_hidden) if not leader.is_judged]
            waiting += [leader for leader in leaders if leader.score >= MIN_SCORE][:JUDGED]
        for leader in waiting:
            # at least one is judged, and none that can only be worse
            if (self._has_judged and self._budget.is_over()) or (leader.is_hidden and self._is_public()):
                return
            self._has_judged = leader.is_judged = True
            batch = leader.alone() if self._differs_alone(leader) else leader.batch
            witness = self._judge(batch, leader.name)
            if witness is not None and (self._best is None or _rank(witness) > _rank(self._best)):
                self._best = witness

    def _judge(self, batch: ProofBatch, description: str) -> Witness | None:
        try:
            return self._sides.judge(batch, description)
        # a network's code and both runtimes may raise anything
        except Exception:
            return None

    def _differs_alone(self, leader: _Leader) -> bool:
        """Whether a row differs without the rows beside it, too."""
        if self._candidates.fixed_rows:
            return False
        try:
            score = self._sides.score(leader.alone())
        # a network's code and both runtimes may raise anything
        except Exception:
            return False
        alone = (score.hidden if leader.is_hidden else score.public).max()
        return bool(alone >= min(ALONE_SHARE * leader.score, ALONE_SCORE))

    def _is_clear(self) -> bool:
        return self._best is not None and self._is_public() and CLEAR_TIMES <= self._best.times < np.inf

    def _is_public(self) -> bool:
        """Whether the best witness so far is a value that a caller gets."""
        return self._best is not None and not self._best.is_hidden and self._best.failure is None


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


def _rank(witness: Witness) -> tuple[bool, bool, bool, float]:
    """Values before failures, numbers before infinities, outputs before hidden ones; then the difference."""
    is_finite = bool(np.isfinite(witness.times))
    return witness.failure is None, is_finite, not witness.is_hidden, witness.times
