"""Command line of the benchmarks: compares turnpike with other servers, or runs another benchmark."""

from __future__ import annotations

import argparse
import signal
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path

from benchmarks import report
from benchmarks.comparison import grpc, rounds
from benchmarks.contestants.contestants import select_contestants
from benchmarks.cost import gates_cost
from benchmarks.cuda.page import write_cuda_page
from benchmarks.errors import BenchmarkError
from benchmarks.folders import WORK_FOLDER
from benchmarks.growth import growth
from benchmarks.measurement import h2load, processes, wrk
from benchmarks.results.results_file import ResultsWriter, read_results
from benchmarks.under_load import model_loading, soak, worker_profile


def main() -> None:
    # without this, SIGTERM would leave the servers running that the benchmark started
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    arguments = parse_arguments(sys.argv[1:])
    try:
        arguments.run(arguments)
    except KeyboardInterrupt:
        raise SystemExit(130) from None
    except BenchmarkError as error:
        raise SystemExit(f"benchmarks: {error}") from error


def parse_arguments(arguments: list[str]) -> argparse.Namespace:
    """Parse the command line; without the name of a command, the command is `comparison`."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    commands = parser.add_subparsers(title="commands (default: comparison)", metavar="COMMAND")

    def add_command(
        name: str, run: Callable[[argparse.Namespace], None], description: str
    ) -> argparse.ArgumentParser:
        command = commands.add_parser(name, help=description, description=description)
        command.set_defaults(run=run)
        return command

    def add_measurement(
        name: str, run: Callable[[argparse.Namespace], None], seconds: int, description: str
    ) -> argparse.ArgumentParser:
        command = add_command(name, run, description)
        command.add_argument(
            "--seconds", type=int, default=seconds, help="duration of each measurement (default: %(default)s)"
        )
        command.add_argument(
            "--out",
            type=Path,
            default=WORK_FOLDER / f"{name}.jsonl",
            help=f"results file (default: .bench/{name}.jsonl)",
        )
        return command

    def add_rounds(command: argparse.ArgumentParser) -> None:
        command.add_argument("--rounds", type=int, default=3, help="number of rounds (default: %(default)s)")

    command = add_measurement("comparison", run_comparison, 2, "compare turnpike with other servers")
    command.add_argument(
        "--quick", action="store_true", help="take two minutes, and compare with naive FastAPI only"
    )
    command.add_argument(
        "--minutes", type=float, default=9, help="start rounds for this long (default: %(default)s)"
    )
    command.add_argument(
        "--rivals", default="all", help="all, or beginnings of names, separated by commas (default: all)"
    )
    add_rounds(
        add_measurement("grpc", run_grpc, 2, "compare turnpike with other servers over gRPC, and with HTTP")
    )
    command = add_measurement(
        "growth", run_growth, 2, "measure cost by rows, connections, depth, width and number of models"
    )
    command.add_argument("--only", choices=growth.GROWTHS, help="measure only this growth")
    add_rounds(command)
    add_rounds(
        add_measurement("gates", run_gates, 2, "measure requests for gates, compared with predictions")
    )
    add_rounds(add_measurement("loading", run_loading, 4, "measure latency while another model is loaded"))
    add_measurement("profile", run_profile, 20, "show where a loaded worker's time goes, with py-spy")
    command = add_command(
        "cost", run_cost, "count Python instructions and C calls of a request, and compare with the record"
    )
    command.add_argument("--record", action="store_true", help="write the counts as the new record")
    command = add_command("soak", run_soak, "show whether memory grows over millions of requests")
    options = {
        "requests": (3_000_000, "requests after the warm-up"),
        "warm-up": (300_000, "requests in which caches may fill"),
        "every": (50_000, "requests between samples of memory"),
        "clients": (8, "connections at a time"),
        "workers": (2, "workers of the server"),
        "limit": (10, "accepted growth in MiB"),
    }
    for name, (default, meaning) in options.items():
        command.add_argument(f"--{name}", type=int, default=default, help=f"{meaning} (default: %(default)s)")
    command = add_command("report", run_report, "print the tables of a results file")
    command.add_argument("file", type=Path, help="results file")
    add_command(
        "docs",
        run_docs,
        "write the figures and plots of the documentation from benchmarks/results",
    )

    is_command = arguments and (arguments[0] in commands.choices or arguments[0] in ("-h", "--help"))
    return parser.parse_args(arguments if is_command else ["comparison", *arguments])


def measure(
    arguments: argparse.Namespace,
    benchmark: Callable[[ResultsWriter], None],
    require_programs: Callable[[], None] = wrk.require_wrk,
) -> None:
    """Run a benchmark that writes a results file and requires a load generator, and print its tables."""
    require_programs()
    processes.adopt_descendants()
    with ResultsWriter(arguments.out) as writer:
        benchmark(writer)
    print(f"\n{report.format_results(read_results(arguments.out))}")


def run_comparison(arguments: argparse.Namespace) -> None:
    rivals, minutes = ("naive", 2) if arguments.quick else (arguments.rivals, arguments.minutes)
    contestants = select_contestants(rivals)
    measure(arguments, partial(rounds.compare, contestants, minutes=minutes, seconds=arguments.seconds))


def run_grpc(arguments: argparse.Namespace) -> None:
    benchmark = partial(grpc.compare_over_grpc, rounds=arguments.rounds, seconds=arguments.seconds)
    measure(arguments, benchmark, h2load.require_h2load)


def run_growth(arguments: argparse.Namespace) -> None:
    benchmark = partial(
        growth.measure_growths, rounds=arguments.rounds, seconds=arguments.seconds, only=arguments.only
    )
    measure(arguments, benchmark)


def run_gates(arguments: argparse.Namespace) -> None:
    measure(arguments, partial(gates_cost.measure_gates, rounds=arguments.rounds, seconds=arguments.seconds))


def run_loading(arguments: argparse.Namespace) -> None:
    measure(
        arguments, partial(model_loading.measure_loading, rounds=arguments.rounds, seconds=arguments.seconds)
    )


def run_profile(arguments: argparse.Namespace) -> None:
    measure(arguments, partial(worker_profile.profile, seconds=arguments.seconds))


def run_cost(arguments: argparse.Namespace) -> None:
    # only this benchmark needs the test helpers and a worker in this process
    from benchmarks.cost import request_cost

    request_cost.run(record=arguments.record)


def run_soak(arguments: argparse.Namespace) -> None:
    soak.soak(
        requests=arguments.requests,
        warm_up=arguments.warm_up,
        every=arguments.every,
        clients=arguments.clients,
        workers=arguments.workers,
        limit=arguments.limit,
    )


def run_report(arguments: argparse.Namespace) -> None:
    print(report.format_results(read_results(arguments.file)))


def run_docs(arguments: argparse.Namespace) -> None:
    report.write_performance_page()
    write_cuda_page()


if __name__ == "__main__":
    main()
