"""Runs a job on this machine: one process for each CPU, each with the model."""

from __future__ import annotations

import multiprocessing
import os
import signal
import threading
from collections.abc import Callable, Mapping
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from multiprocessing import connection
from multiprocessing.sharedctypes import Synchronized
from multiprocessing.synchronize import Event
from pathlib import Path

from turnpike.common.cpus import whole_cpus
from turnpike.score.errors import RowsError, ScoreError
from turnpike.score.job.options import OutputOptions
from turnpike.score.job.score_part import score_part
from turnpike.score.job.scoring_model import ScoringModel
from turnpike.score.readers.parts import Part

# seconds between two looks at the number of rows
REFRESH_SECONDS = 0.2


class _StoppedError(Exception):
    """The job is over: this part is not finished."""


class _Worker:
    """What a process keeps between parts."""

    model: ScoringModel
    rows: Synchronized[int]
    stop: Event


def run_local(
    model: Path,
    *,
    options: OutputOptions,
    parts: Mapping[Path, Part],
    workers: int | None,
    on_progress: Callable[[int, int], None],
) -> dict[Path, str]:
    """Score the parts; each is written to its file. Returns why parts cannot be scored, by their files.

    Args:
        model: Path of the model.
        options: What is written for each row.
        parts: The parts that are not there yet, by their files.
        workers: Processes; by default one for each CPU. With fewer, each has more threads.
        on_progress: Called now and then with the finished parts and the rows so far.

    Raises:
        ScoreError: The model or the disk fails, or a process was killed. Finished parts stay.
    """
    cpus = whole_cpus()
    workers = min(workers or cpus, len(parts))
    threads = max(1, cpus // workers)
    if workers == 1:
        return _run_here(ScoringModel(model, options, threads), parts, on_progress)
    context = multiprocessing.get_context("spawn")
    rows, stop = context.Value("q", 0), context.Event()
    executor = ProcessPoolExecutor(workers, context, _start_worker, (model, options, threads, rows, stop))
    failures: dict[Path, str] = {}
    try:
        files = {executor.submit(_score, part, file): file for file, part in parts.items()}
        waiting: set[Future[int]] = set(files)
        finished = 0
        while waiting:
            done, waiting = wait(waiting, REFRESH_SECONDS, FIRST_COMPLETED)
            for future in done:
                try:
                    future.result()
                except RowsError as error:
                    failures[files[future]] = str(error)
            finished += len(done)
            on_progress(finished, rows.value)
    except BrokenProcessPool as error:
        raise ScoreError(
            "a process was killed, perhaps because memory was short (--workers takes fewer); "
            "the same command continues the job"
        ) from error
    finally:
        stop.set()
        executor.shutdown(cancel_futures=True)
    return failures


def _run_here(
    model: ScoringModel, parts: Mapping[Path, Part], on_progress: Callable[[int, int], None]
) -> dict[Path, str]:
    """Score the parts in this process, which saves the start of another."""
    failures: dict[Path, str] = {}
    rows = finished = 0

    def count(some: int) -> None:
        nonlocal rows
        rows += some
        on_progress(finished, rows)

    for file, part in parts.items():
        try:
            score_part(model, part, file, count)
        except RowsError as error:
            failures[file] = str(error)
        finished += 1
    on_progress(finished, rows)
    return failures


def _start_worker(
    model: Path, options: OutputOptions, threads: int, rows: Synchronized[int], stop: Event
) -> None:
    # Ctrl-C reaches all processes of a terminal; the first of them ends the others
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=_end_with_parent, daemon=True).start()
    _Worker.rows, _Worker.stop = rows, stop
    _Worker.model = ScoringModel(model, options, threads)


def _end_with_parent() -> None:
    """End when the first process was killed: a worker would wait for parts for ever."""
    if (parent := multiprocessing.parent_process()) is not None:
        connection.wait([parent.sentinel])
        os._exit(1)


def _score(part: Part, target: Path) -> int:
    def count(rows: int) -> None:
        if _Worker.stop.is_set():
            raise _StoppedError
        with _Worker.rows.get_lock():
            _Worker.rows.value += rows

    return score_part(_Worker.model, part, target, count)
