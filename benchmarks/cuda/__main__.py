"""Runs on a GPU what needs one, and writes the figures of docs/how-to/cuda.md: `make cuda`.

    python -m benchmarks.cuda [--python PYTHON] [--families NAMES] [--networks NAMES] [--seconds N]
    python -m benchmarks.cuda --device cpu

The second line is a rehearsal on a machine without a GPU. It writes a copy of the page into .bench, and so
does a run that leaves out families or networks. Requires wrk.
"""

from __future__ import annotations

import argparse
import contextlib
import shutil
import signal
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

from benchmarks.cuda.answers import compare_answers
from benchmarks.cuda.device_python import DevicePython, device_python
from benchmarks.cuda.families import (
    FAMILY_NETWORKS,
    FamilyNetwork,
    export_family,
    select_families,
    verify_family,
)
from benchmarks.cuda.gpu import find_gpu
from benchmarks.cuda.page import CUDA_PAGE, CUDA_RESULTS, failures, write_cuda_page
from benchmarks.cuda.speed import NETWORKS, SpeedPlan, measure_speed, select_networks
from benchmarks.errors import BenchmarkError
from benchmarks.folders import WORK_FOLDER
from benchmarks.measurement import processes, wrk
from benchmarks.results.results_file import ResultsWriter, read_results

# results and page of a rehearsal, or of a run that leaves something out
DRAFT_RESULTS = WORK_FOLDER / "cuda.jsonl"
DRAFT_PAGE = WORK_FOLDER / "cuda.md"


def main(arguments: Sequence[str]) -> None:
    options = parse_arguments(arguments)
    try:
        run(options)
    except KeyboardInterrupt:
        raise SystemExit(130) from None
    except BenchmarkError as error:
        raise SystemExit(f"benchmarks: {error}") from error


def parse_arguments(arguments: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.cuda", description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument(
        "--device",
        choices=("cuda", "cpu"),
        default="cuda",
        help="cpu is a rehearsal (default: %(default)s)",
    )
    parser.add_argument(
        "--python",
        type=Path,
        help="interpreter with the extras export and serve-gpu (default: of an environment made for this)",
    )
    parser.add_argument("--families", default="all", help="families of networks to prove (default: all)")
    parser.add_argument("--networks", default="S,L", help="networks to time (default: %(default)s)")
    parser.add_argument("--seconds", type=int, default=2, help="of each measurement (default: %(default)s)")
    parser.add_argument("--no-compile", action="store_true", help="leave out torch.compile")
    return parser.parse_args(arguments)


def run(options: argparse.Namespace) -> None:
    """Run everything, write the page, and raise BenchmarkError if a part of it failed."""
    # check first for everything that may be missing: the rest takes long
    gpu = find_gpu() if options.device == "cuda" else None
    wrk.require_wrk()
    families = select_families(options.families)
    networks = select_networks(options.networks)
    plan = SpeedPlan(networks=networks, seconds=options.seconds, compiled=not options.no_compile)
    python = device_python(options.device, options.python)
    python.expect_device()

    unfinished = WORK_FOLDER / "cuda-unfinished.jsonl"
    processes.adopt_descendants()
    with ResultsWriter(unfinished) as writer:
        writer.write({"kind": "device", "device": python.device, "gpu": None if gpu is None else str(gpu)})
        measure_all(writer, python, families, plan)
    lines = read_results(unfinished)
    # only a whole run on a GPU may replace the figures of the documentation
    is_whole = families == FAMILY_NETWORKS and set(networks) == set(NETWORKS) and plan.compiled
    if gpu is not None and is_whole:
        results, page = CUDA_RESULTS, CUDA_PAGE
    else:
        results, page = DRAFT_RESULTS, DRAFT_PAGE
        shutil.copy(CUDA_PAGE, page)
    shutil.move(unfinished, results)
    write_cuda_page(page, results)
    print(f"wrote {page}")
    if failed := failures(lines):
        raise BenchmarkError(f"{len(failed)} parts failed, the first with: {failed[0]}")


def measure_all(
    writer: ResultsWriter, python: DevicePython, families: Sequence[FamilyNetwork], plan: SpeedPlan
) -> None:
    """Prove files of every family, compare the answers of the service, and measure speed."""
    with tempfile.TemporaryDirectory(prefix="turnpike-cuda-") as folder:
        runs, repository = Path(folder) / "runs", Path(folder) / "repository"
        exported = []
        for network in families:
            with recorded_failure(writer):
                export_family(network, runs, repository)
                exported.append(network)
                verify_family(writer, python, network, runs, repository)
        with recorded_failure(writer):
            compare_answers(writer, python, exported, repository)
    with recorded_failure(writer):
        measure_speed(writer, python, plan)


@contextlib.contextmanager
def recorded_failure(writer: ResultsWriter) -> Iterator[None]:
    """Write a line if this part fails, so that the other parts are measured all the same."""
    try:
        yield
    except BenchmarkError as error:
        writer.write({"kind": "part", "failed": str(error)})


if __name__ == "__main__":
    # without this, SIGTERM would leave the servers running that the benchmark started
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    main(sys.argv[1:])
