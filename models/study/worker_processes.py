"""Processes that train the runs of a study side by side.

Each is a fresh interpreter with a pipe to the process that started it. A run that is being trained
stops, and saves where it is, as soon as anything stirs at the other end of its pipe: the word to stop,
or the pipe's end, should the other process have died. Ctrl-C reaches the starting process alone.
"""

from __future__ import annotations

import contextlib
import multiprocessing
import signal
import threading
import time
import traceback
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from pathlib import Path
from types import TracebackType

from models.errors import ModelsError, TrainingError
from models.study.results import load_result, save_divergence
from models.study.study import Study, StudyRun
from models.training.run_plan import LAST_CHECKPOINT, RunPlan
from models.training.train import StepReport, train

PROGRESS_INTERVAL_SECONDS = 0.2  # seconds between two words of progress, and between two looks at `stop`


@dataclass(frozen=True)
class StepMessage:
    """How far a run is."""

    cell: StudyRun
    step: int
    steps: int
    loss: float


@dataclass(frozen=True)
class EndMessage:
    """A run is over, one way or another, and its folder says how."""

    cell: StudyRun


@dataclass(frozen=True)
class FailureMessage:
    """A run could not be trained."""

    cell: StudyRun
    reason: str
    trace: str = ""


Message = StepMessage | EndMessage | FailureMessage


def train_runs(
    study: Study,
    folder: Path,
    cells: Sequence[StudyRun],
    *,
    jobs: int,
    hear: Callable[[StepMessage | EndMessage], None],
    stop: Callable[[], bool],
) -> None:
    """Train the cells, `jobs` at a time, the deepest first so that all processes end at about one time.

    When it returns, or raises, no process is left, and what was begun is saved.
    """
    # of one depth, highway layers take longest: they have two maps, if smaller ones
    waiting = sorted(cells, key=lambda cell: (cell.depth, cell.family == "highway"))
    with _WorkerPool(study, folder, min(jobs, len(cells))) as crew:
        for hand in crew.hands:
            hand.give(waiting.pop())
        while crew.busy and not stop():
            for hand, word in crew.listen():
                if isinstance(word, FailureMessage):
                    raise TrainingError(f"{word.cell.name}: {word.reason}") from _cause(word)
                hear(word)
                if isinstance(word, EndMessage):
                    hand.cell = None
                    if waiting:
                        hand.give(waiting.pop())


def _cause(word: FailureMessage) -> Exception | None:
    return RuntimeError(word.trace) if word.trace else None


class _Worker:
    """One process, and the cell that it trains."""

    def __init__(self, study: Study, folder: Path) -> None:
        context = multiprocessing.get_context("spawn")
        self.pipe, theirs = context.Pipe()
        self.process: BaseProcess = context.Process(
            target=_worker_main, args=(theirs, study, folder), daemon=True
        )
        self.process.start()
        theirs.close()  # so that the pipe ends with the process
        self.cell: StudyRun | None = None

    def give(self, cell: StudyRun) -> None:
        self.cell = cell
        with contextlib.suppress(OSError):  # of a dead process, the pipe's end tells
            self.pipe.send(cell)

    def listen(self) -> Message | None:
        """The next word; None once there will be no other."""
        try:
            return self.pipe.recv()
        except (EOFError, OSError):
            return None


class _WorkerPool:
    def __init__(self, study: Study, folder: Path, size: int) -> None:
        self.hands: list[_Worker] = []
        with _without_sigint():
            try:
                for _ in range(size):
                    self.hands.append(_Worker(study, folder))
            except BaseException:
                self.kill()
                raise

    @property
    def busy(self) -> bool:
        return any(hand.cell for hand in self.hands)

    def listen(self) -> Iterator[tuple[_Worker, Message]]:
        """What the busy ones have to say, if they do so soon."""
        by_pipe = {hand.pipe: hand for hand in self.hands if hand.cell}
        for pipe in wait(list(by_pipe), timeout=PROGRESS_INTERVAL_SECONDS):
            hand = by_pipe[pipe]  # type: ignore[index]
            word = hand.listen()
            if word is not None:
                yield hand, word
            elif hand.cell is not None:
                hand.process.join()
                yield hand, FailureMessage(hand.cell, _death_reason(hand.process.exitcode))

    def __enter__(self) -> _WorkerPool:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Let every process save what it is at and end; a second Ctrl-C ends them at once."""
        try:
            for hand in self.hands:
                with contextlib.suppress(OSError):
                    hand.pipe.send(None)
            for hand in self.hands:
                while hand.listen() is not None:
                    pass
                hand.process.join()
        finally:
            self.kill()

    def kill(self) -> None:
        for hand in self.hands:
            if hand.process.is_alive():
                hand.process.terminate()
                hand.process.join()
            hand.pipe.close()


def _death_reason(code: int | None) -> str:
    if code is not None and code < 0:
        with contextlib.suppress(ValueError):
            return f"its process was ended by {signal.Signals(-code).name}: was there enough memory?"
    return f"its process ended with exit code {code}"


@contextlib.contextmanager
def _without_sigint() -> Iterator[None]:
    """Processes that are started meanwhile never hear Ctrl-C, not even while they import."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


def _worker_main(pipe: Connection, study: Study, folder: Path) -> None:
    """The life of one process: train each cell that comes, until there is none."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    data = None
    with contextlib.suppress(EOFError, OSError):  # nobody listens any more
        while (cell := pipe.recv()) is not None:
            try:
                data = study.read() if data is None else data
                _train_run(study.plan(cell, data, folder), cell, pipe)
            except ModelsError as error:
                pipe.send(FailureMessage(cell, str(error)))
            except Exception as error:
                first = (str(error).splitlines() or [""])[0]
                pipe.send(FailureMessage(cell, f"{type(error).__name__}: {first}", traceback.format_exc()))
            else:
                pipe.send(EndMessage(cell))


def _train_run(plan: RunPlan, cell: StudyRun, pipe: Connection) -> None:
    rows = plan.data.digest
    before = load_result(plan, cell, rows)
    step, history, due = before.step, list(before.history), 0.0

    def tell(tick: StepReport) -> None:
        nonlocal step, history, due
        step, history = tick.step, tick.history
        if time.monotonic() >= due:
            due = time.monotonic() + PROGRESS_INTERVAL_SECONDS
            with contextlib.suppress(OSError):  # nobody listens: `stop` is about to find out
                pipe.send(StepMessage(cell, tick.step, tick.steps, tick.loss))

    try:
        train(plan, resume=(plan.folder / LAST_CHECKPOINT).exists(), tell=tell, stop=pipe.poll)
    except TrainingError:
        save_divergence(plan, rows, step, history)
