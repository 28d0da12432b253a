"""`python -m benchmarks`: the comparison by itself, and what else can be measured or told by name."""

from __future__ import annotations

import argparse
import signal
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path

from benchmarks import comparison, gates, growth, hotspots, load, loading, processes, report, request_cost
from benchmarks.contestants import chosen
from benchmarks.errors import BenchmarkError
from benchmarks.lines import Writer, read
from benchmarks.places import KEPT


def measure(given: argparse.Namespace, act: Callable[[Writer], None]) -> None:
    """Keep what comes of it, and show its tables."""
    load.expect_wrk()
    processes.keep_descendants()
    with Writer(given.out) as writer:
        act(writer)
    print(f"\n{report.tables(read(given.out))}")


def compare(given: argparse.Namespace) -> None:
    rivals, minutes = ("naive", 2) if given.quick else (given.rivals, given.minutes)
    contestants = chosen(rivals)
    measure(given, partial(comparison.compare, contestants, minutes=minutes, seconds=given.seconds))


def grow(given: argparse.Namespace) -> None:
    measure(given, partial(growth.grow, rounds=given.rounds, seconds=given.seconds, only=given.only))


def cost_of_gates(given: argparse.Namespace) -> None:
    measure(given, partial(gates.compare, rounds=given.rounds, seconds=given.seconds))


def beside_loads(given: argparse.Namespace) -> None:
    measure(given, partial(loading.compare, rounds=given.rounds, seconds=given.seconds))


def profile(given: argparse.Namespace) -> None:
    measure(given, partial(hotspots.profile, seconds=given.seconds))


def tell(given: argparse.Namespace) -> None:
    print(report.tables(read(given.file)))


def cost(given: argparse.Namespace) -> None:
    request_cost.run(record=given.record)


def write(given: argparse.Namespace) -> None:
    report.write_document()


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    commands = parser.add_subparsers()

    def command(name: str, act: Callable[[argparse.Namespace], None], about: str) -> argparse.ArgumentParser:
        added = commands.add_parser(name, help=about, description=about)
        added.set_defaults(act=act)
        return added

    def measuring(
        name: str, act: Callable[[argparse.Namespace], None], seconds: int, about: str
    ) -> argparse.ArgumentParser:
        added = command(name, act, about)
        added.add_argument("--seconds", type=int, default=seconds, help=f"of each measurement ({seconds})")
        added.add_argument("--out", type=Path, default=KEPT / f"{name}.jsonl", help="the results' file")
        return added

    one = measuring("comparison", compare, 2, "turnpike beside its rivals; what is done without a name")
    one.add_argument("--quick", action="store_true", help="two minutes, beside naive FastAPI alone")
    one.add_argument("--minutes", type=float, default=9, help="rounds go on for so long (9)")
    one.add_argument("--rivals", default="all", help="all, or names with commas between (all)")
    one = measuring("growth", grow, 2, "cost by rows, connections, depth, width and number of models")
    one.add_argument("--only", choices=growth.GROWTHS, help="one of them alone")
    for_gates = measuring("gates", cost_of_gates, 2, "what gates cost, asked for and in the file")
    for_loads = measuring("loading", beside_loads, 4, "what others notice while a model is loaded")
    for some in (one, for_gates, for_loads):
        some.add_argument("--rounds", type=int, default=3, help="how often everything is measured (3)")
    measuring("profile", profile, 20, "where a loaded worker's time goes, by py-spy")
    counted = command("cost", cost, "instructions and C calls that a request costs, beside the recorded ones")
    counted.add_argument("--record", action="store_true", help="write the figures as the new record")
    command("report", tell, "the tables of a results' file").add_argument("file", type=Path)
    command("docs", write, "docs/explanation/performance.md and its pictures anew, from benchmarks/results")
    words = sys.argv[1:]
    named = words and (words[0] in commands.choices or words[0] in ("-h", "--help"))
    given = parser.parse_args(words if named else ["comparison", *words])
    # so that whatever was started is ended, too
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    try:
        given.act(given)
    except KeyboardInterrupt:
        raise SystemExit(130) from None
    except BenchmarkError as error:
        raise SystemExit(f"benchmarks: {error}") from error


if __name__ == "__main__":
    main()
