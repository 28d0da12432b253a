"""The comparison over gRPC: answers are checked around each load, and ratios are of one round."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from benchmarks import __main__ as command
from benchmarks.comparison import grpc
from benchmarks.contestants.contestants import GRPC_CONTESTANTS
from benchmarks.contestants.networks import BenchmarkNetwork
from benchmarks.errors import BenchmarkError
from benchmarks.measurement.measure import Measurement, Workload
from benchmarks.measurement.wrk import Load
from benchmarks.report import format_results
from benchmarks.results.results_file import ResultLine, ResultsWriter, read_results

ONE, SIXTEEN, SIXTY_FOUR, STREAMS, ROWS = grpc.WORKLOADS


class FakeServers:
    """Servers that are not started, and by their names what happened to them: starts, checks and loads."""

    def __init__(self) -> None:
        self.events: dict[str, list[Any]] = {}
        # requests that each refuses, those that do not start, and those whose answers are wrong after a load
        self.refused: dict[str, int] = {}
        self.unavailable: set[str] = set()
        self.wrong_after_load: set[str] = set()

    @contextlib.contextmanager
    def running_server(self, contestant: Any, network: Any) -> Iterator[Any]:
        events = self.events.setdefault(contestant.name, [])
        events.append("start")
        if contestant.name in self.unavailable:
            raise BenchmarkError(f"{contestant.name}: expected a network")

        def check(wire_format: str, row_count: int) -> None:
            if contestant.name in self.wrong_after_load and events[-1][0] == "load":
                raise BenchmarkError(f"{contestant.name}: expected the network's logits")
            events.append(("check", wire_format, row_count))

        yield SimpleNamespace(
            contestant=contestant,
            check=check,
            answer=lambda wire_format, row_count: (bytes(7 * row_count), {}),
            url=lambda wire_format: (contestant.name, wire_format),
            request=lambda wire_format, row_count: row_count,
        )

    def run_h2load(self, url: tuple[str, str], request: int, **options: Any) -> Load:
        name, wire_format = url
        self.events[name].append(("load", wire_format, request, options))
        return Load(1000, options["seconds"], lost=0, refused=self.refused.get(name, 0))


@pytest.fixture
def servers(monkeypatch: pytest.MonkeyPatch) -> FakeServers:
    fake = FakeServers()
    monkeypatch.setattr(grpc, "running_server", fake.running_server)
    monkeypatch.setattr(grpc, "run_h2load", fake.run_h2load)
    monkeypatch.setattr(grpc, "measure_load", lambda put_load: Measurement(put_load(), 1.0, 0.5, 0.25))
    monkeypatch.setattr(BenchmarkNetwork, "ensure_files", lambda network: None)
    return fake


def compare(folder: Path, *, rounds: int = 1, seconds: int = 2) -> list[ResultLine]:
    with ResultsWriter(folder / "r.jsonl") as writer:
        grpc.compare_over_grpc(writer, rounds=rounds, seconds=seconds)
    return read_results(folder / "r.jsonl")


def test_every_round_starts_every_server_anew(servers: FakeServers, tmp_path: Path) -> None:
    lines = compare(tmp_path, rounds=2)
    assert set(servers.events) == {contestant.name for contestant in GRPC_CONTESTANTS}
    assert all(events.count("start") == 2 for events in servers.events.values())
    assert {line["round"] for line in lines if line["kind"] == "grpc"} == {0, 1}


def test_answers_are_checked_before_and_after_each_load(servers: FakeServers, tmp_path: Path) -> None:
    """With the rows of the load, which is put on the server for a second before it is measured."""
    compare(tmp_path, seconds=3)
    start, *events = servers.events["KServe"]
    assert start == "start"
    for workload in grpc.WORKLOADS:
        before, warm_up, load, after, *events = events
        assert before == after == ("check", "v2 gRPC", workload.rows)
        assert warm_up[:3] == load[:3] == ("load", "v2 gRPC", workload.rows)
        assert (warm_up[3].pop("seconds"), load[3].pop("seconds")) == (1, 3)
        assert warm_up[3] == load[3]
        assert load[3] == {
            "connections": workload.connections,
            "streams": workload.streams,
            "answer_bytes": 7 * workload.rows,
            "http1": False,
        }
    assert not events


def test_turnpike_is_measured_over_http_too(servers: FakeServers, tmp_path: Path) -> None:
    """On the same server, without the load of many streams on a connection, which HTTP/1.1 does not have."""
    table = format_results(compare(tmp_path))
    loads = [event for event in servers.events["turnpike"] if event[0] == "load" and event[1] == "v2 binary"]
    assert {(load[2], load[3]["connections"], load[3]["streams"]) for load in loads} == {
        (workload.rows, workload.connections, 1) for workload in (ONE, SIXTEEN, SIXTY_FOUR, ROWS)
    }
    assert all(load[3]["http1"] for load in loads)
    assert "| turnpike, binary over HTTP | 500 | 500 | 500 | - | 500 |" in table
    assert servers.events["turnpike"].count("start") == 1


def test_a_server_that_fails_does_not_end_the_others(servers: FakeServers, tmp_path: Path) -> None:
    """Its reason is below the tables, once for all rounds."""
    servers.unavailable = {"MLServer"}
    servers.refused = {"KServe": 3}
    servers.wrong_after_load = {"Triton 2 x 1"}
    text = format_results(compare(tmp_path, rounds=2))
    for reason in (
        "MLServer: expected a network.",
        "KServe: expected answers to all requests, got Load(requests=1000, seconds=2, lost=0, refused=3).",
        "Triton 2 x 1: expected the network's logits.",
    ):
        assert text.count(f"Failed: {reason}") == 1
    for name in ("MLServer", "KServe", "Triton 2 x 1"):
        assert f"| {name} |" not in text
    assert "| turnpike | 500 |" in text


def line(server: str, number: int, rate: float, workload: Workload = ONE) -> ResultLine:
    fields = {"kind": "grpc", "server": server, "round": number, "rate": rate, "lost": 0, "refused": 0}
    return fields | {"other_cpus": 0.1} | grpc.columns(workload)


def test_a_ratio_is_of_one_round() -> None:
    """A machine that is twice as fast in the second round changes no ratio."""
    machine = {"kind": "machine", "date": "2026-01-01", "cpu": "a CPU", "cpus": 2, "python": "3.11"}
    text = grpc.grpc_tables(
        [
            machine | {"onnxruntime": "1.31"},
            line("turnpike", 0, 1000),
            line("other", 0, 500),
            line("turnpike", 1, 2000),
            line("other", 1, 1000),
            line("turnpike", 2, 9000),
            line("turnpike", 2, 7, STREAMS),
        ]
    )
    assert "| turnpike | 2,000 | - | - | 7 | - |" in text
    assert "| other | 750 | - | - | - | - |" in text
    assert "| other | 2.00 | - | - | - | - |" in text
    assert "Rounds: 3." in text


def test_columns_name_rows_connections_and_streams() -> None:
    assert [grpc.label(workload) for workload in grpc.WORKLOADS] == [
        "1 row, 1 connection",
        "1 row, 16 connections",
        "1 row, 64 connections",
        "1 row, 1 connection, 64 streams",
        "32 rows, 16 connections",
    ]


def test_without_h2load_the_command_says_how_to_install_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """wrk is not required."""
    arguments = command.parse_arguments(["grpc", "--rounds", "1"])
    monkeypatch.setenv("PATH", "/nowhere")
    with pytest.raises(BenchmarkError, match="h2load: .* apt install nghttp2-client"):
        arguments.run(arguments)
