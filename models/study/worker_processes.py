"""Worker processes that train the runs of a study side by side.

Each worker is a new interpreter, connected to the parent process by a pipe. A worker saves and stops as soon
as its pipe is readable: the parent has sent a stop message or has died (EOF). Ctrl-C is handled by the
parent only.
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

from turnpike.common.durable_files import WriteError
from turnpike.models.errors import ModelsError, TrainingError
from turnpike.models.study.results import load_result, save_divergence
from turnpike.models.study.study_plan import Study, StudyRun
from turnpike.models.training.run_plan import LAST_CHECKPOINT, RunPlan
from turnpike.models.training.train import StepReport, train

# time between two progress messages of a worker, and between two calls of `should_stop`
PROGRESS_INTERVAL_SECONDS = 0.2


@dataclass(frozen=True)
class StepMessage:
    """A worker has taken further steps of a run."""

    run: StudyRun
    step: int
    steps: int
    loss: float


@dataclass(frozen=True)
class EndMessage:
    """A worker has finished or stopped a run, or the run diverged; its folder has the result."""

    run: StudyRun


@dataclass(frozen=True)
class FailureMessage:
    """A worker could not train a run."""

    run: StudyRun
    reason: str
    trace: str = ""


Message = StepMessage | EndMessage | FailureMessage


def train_runs(
    study: Study,
    folder: Path,
    runs: Sequence[StudyRun],
    *,
    jobs: int,
    on_message: Callable[[StepMessage | EndMessage], None],
    should_stop: Callable[[], bool],
) -> None:
    """Train runs in worker processes.

    When it returns or raises, all progress is saved and no worker is left.

    Args:
        study: The study.
        folder: Its folder.
        runs: The runs to train.
        jobs: Number of worker processes.
        on_message: Called with the messages of the workers.
        should_stop: Asked several times per second; if it returns True, the workers save and stop.
    """
    # the longest runs first, so that all workers end at about the same time: the deepest, and at equal depth
    # those with highway layers, which have two maps each
    waiting = sorted(runs, key=lambda run: (run.depth, run.family == "highway"))
    with _WorkerPool(study, folder, min(jobs, len(runs))) as pool:
        for worker in pool.workers:
            worker.assign(waiting.pop())
        while pool.is_busy and not should_stop():
            for worker, message in pool.receive():
                if isinstance(message, FailureMessage):
                    raise TrainingError(f"{message.run.name}: {message.reason}") from _cause(message)
                on_message(message)
                if isinstance(message, EndMessage):
                    worker.run = None
                    if waiting:
                        worker.assign(waiting.pop())


def _cause(message: FailureMessage) -> Exception | None:
    return RuntimeError(message.trace) if message.trace else None


class _Worker:
    """The parent's side of one worker process, and the run that it trains."""

    def __init__(self, study: Study, folder: Path) -> None:
        context = multiprocessing.get_context("spawn")
        self.pipe, worker_pipe = context.Pipe()
        self.process: BaseProcess = context.Process(
            target=_worker_main, args=(worker_pipe, study, folder), daemon=True
        )
        self.process.start()
        worker_pipe.close()  # so that the pipe gives EOF when the worker dies
        self.run: StudyRun | None = None

    def assign(self, run: StudyRun) -> None:
        self.run = run
        with contextlib.suppress(OSError):  # if the worker has died, `receive` finds out
            self.pipe.send(run)

    def receive(self) -> Message | None:
        """Return the next message, or None if the worker has closed its pipe."""
        try:
            return self.pipe.recv()
        except (EOFError, OSError):
            return None


class _WorkerPool:
    """Worker processes, which save and end when the `with` block ends."""

    def __init__(self, study: Study, folder: Path, size: int) -> None:
        self.workers: list[_Worker] = []
        with _without_sigint():
            try:
                for _ in range(size):
                    self.workers.append(_Worker(study, folder))
            except BaseException:
                self.kill()
                raise

    @property
    def is_busy(self) -> bool:
        return any(worker.run for worker in self.workers)

    def receive(self) -> Iterator[tuple[_Worker, Message]]:
        """Yield at most one message per busy worker, waiting a short time for the first."""
        workers = {worker.pipe: worker for worker in self.workers if worker.run}
        for pipe in wait(list(workers), timeout=PROGRESS_INTERVAL_SECONDS):
            worker = workers[pipe]  # type: ignore[index]
            message = worker.receive()
            if message is not None:
                yield worker, message
            elif worker.run is not None:
                worker.process.join()
                yield worker, FailureMessage(worker.run, _death_reason(worker.process.exitcode))

    def __enter__(self) -> _WorkerPool:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Let all workers save and end; a second Ctrl-C meanwhile terminates them."""
        try:
            for worker in self.workers:
                with contextlib.suppress(OSError):
                    worker.pipe.send(None)
            for worker in self.workers:
                while worker.receive() is not None:
                    pass
                worker.process.join()
        finally:
            self.kill()

    def kill(self) -> None:
        for worker in self.workers:
            if worker.process.is_alive():
                worker.process.terminate()
                worker.process.join()
            worker.pipe.close()


def _death_reason(exit_code: int | None) -> str:
    if exit_code is not None and exit_code < 0:
        with contextlib.suppress(ValueError):
            return f"its process was ended by {signal.Signals(-exit_code).name}: was there enough memory?"
    return f"its process ended with exit code {exit_code}"


@contextlib.contextmanager
def _without_sigint() -> Iterator[None]:
    """Ignore SIGINT in the block. Processes started in it inherit this, also while they import."""
    if threading.current_thread() is not threading.main_thread():
        yield  # only the main thread may change signal handlers
        return
    previous = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, previous)


def _worker_main(pipe: Connection, study: Study, folder: Path) -> None:
    """Main function of a worker: train the runs that the parent sends, until it sends None."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    data = None
    with contextlib.suppress(EOFError, OSError):  # the parent has died
        while (run := pipe.recv()) is not None:
            try:
                data = study.load_data() if data is None else data
                _train_run(study.plan_for(run, data, folder), run, pipe)
            except (ModelsError, WriteError) as error:
                pipe.send(FailureMessage(run, str(error)))
            except Exception as error:
                first_line = (str(error).splitlines() or [""])[0]
                reason = f"{type(error).__name__}: {first_line}"
                pipe.send(FailureMessage(run, reason, traceback.format_exc()))
            else:
                pipe.send(EndMessage(run))


def _train_run(plan: RunPlan, run: StudyRun, pipe: Connection) -> None:
    digest = plan.data.digest
    earlier = load_result(plan, run, digest)
    step, history, next_message_at = earlier.step, list(earlier.history), 0.0

    def on_step(report: StepReport) -> None:
        nonlocal step, history, next_message_at
        step, history = report.step, report.history
        if time.monotonic() >= next_message_at:
            next_message_at = time.monotonic() + PROGRESS_INTERVAL_SECONDS
            with contextlib.suppress(OSError):  # the parent has died: `should_stop` finds out
                pipe.send(StepMessage(run, report.step, report.steps, report.loss))

    try:
        train(plan, resume=(plan.folder / LAST_CHECKPOINT).exists(), on_step=on_step, should_stop=pipe.poll)
    except TrainingError:
        save_divergence(plan, digest, step, history)
