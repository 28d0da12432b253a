"""Measures what users of one model notice while another, large model is loaded again and again."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from statistics import median
from typing import Any

from benchmarks.contestants.contestants import turnpike
from benchmarks.contestants.networks import NETWORK_L, NETWORK_S, NETWORKS
from benchmarks.contestants.wire_formats import EncodedRequest
from benchmarks.errors import BenchmarkError
from benchmarks.folders import linked_models
from benchmarks.measurement import wrk
from benchmarks.measurement.measure import Workload, measure, warm_up
from benchmarks.measurement.server_process import running_server
from benchmarks.results.results_file import ResultLine, ResultsWriter
from benchmarks.results.tables import connections_label, counted, markdown_table

WORKERS = (1, 2)
CONNECTIONS = (1, 16)
# names the thread that loads
THREAD_NAME = "loads"
ADMIN_KEY = "the-key-of-a-benchmark"
# seconds between a load and the next unload
PAUSE_SECONDS = 0.5


def measure_loading(writer: ResultsWriter, *, rounds: int, seconds: int) -> None:
    """Measure S while nothing is loaded and while L is, in turn."""
    for network in NETWORKS:
        network.ensure_files()
    files = {network.name: network.exported_file() for network in NETWORKS}
    for round_number in range(rounds):
        for workers in WORKERS:
            # threads=0: each worker has as many threads as it chooses
            contestant = turnpike(
                "turnpike", workers=workers, threads=0, variables={"TURNPIKE_ADMIN_KEY": ADMIN_KEY}
            )
            with (
                linked_models(files) as models,
                running_server(contestant.with_models(models), NETWORK_S) as server,
            ):
                warm_up(server, Workload("JSON", 1, 16))
                for connections in CONNECTIONS:
                    workload = Workload("JSON", 1, connections)
                    at_rest = measure(server, workload, seconds)
                    with RepeatedLoads(server.port) as loads:
                        # one attempt: CPU time of loading counts as that of other processes, so a
                        # second attempt would not look quieter
                        while_loading = measure(server, workload, seconds, max_attempts=1)
                    fields: dict[str, Any] = {"kind": "loading", "round": round_number}
                    fields |= {"workers": workers, "connections": connections}
                    writer.write({**fields, "what": "rest", "loads": 0, **at_rest.fields()})
                    writer.write(
                        {**fields, "what": "loading", "loads": loads.count, **while_loading.fields()}
                    )


class RepeatedLoads:
    """Context in which L is unloaded and loaded again and again; `count` is the number of loads."""

    def __init__(self, port: int) -> None:
        self.count = 0
        self._port = port
        self._stop = threading.Event()
        self._error: BenchmarkError | None = None
        self._thread = threading.Thread(target=self._run, name=THREAD_NAME, daemon=True)

    def __enter__(self) -> RepeatedLoads:
        self._thread.start()
        return self

    def __exit__(self, *exception: object) -> None:
        self._stop.set()
        self._thread.join()
        if self._error is not None:
            raise self._error

    def _run(self) -> None:
        try:
            while not self._stop.is_set():
                self._post("unload")
                self._post("load")
                self.count += 1
                self._stop.wait(PAUSE_SECONDS)
        except BenchmarkError as error:
            self._error = error

    def _post(self, action: str) -> None:
        headers = {"Content-Type": "application/json", "Authorization": f"Bearer {ADMIN_KEY}"}
        path = f"/v2/repository/models/{NETWORK_L.name}/{action}"
        wrk.post(self._port, path, EncodedRequest(b"{}", headers))


def loading_table(lines: Sequence[ResultLine]) -> str:
    """Latency at rest and while another model is loaded; a row per number of workers and connections."""
    lines = [line for line in lines if line["kind"] == "loading"]
    rows = []
    for workers, connections in dict.fromkeys((line["workers"], line["connections"]) for line in lines):
        at_rest, while_loading = (
            {
                line["round"]: line
                for line in lines
                if (line["workers"], line["connections"], line["what"]) == (workers, connections, what)
            }
            for what in ("rest", "loading")
        )
        pairs = [(at_rest[round_number], while_loading[round_number]) for round_number in at_rest]
        rows.append(
            [
                f"{counted(workers, 'worker', 's')}, {connections_label(connections)}",
                *(f"{median(rest[field] for rest, _ in pairs):.2f}" for field in ("p50_ms", "p99_ms")),
                *(f"{median(load[field] for _, load in pairs):.2f}" for field in ("p50_ms", "p99_ms")),
                f"{median(load['p99_ms'] / rest['p99_ms'] for rest, load in pairs):.2f}",
                f"{median(load['rate'] / rest['rate'] for rest, load in pairs):.2f}",
                f"{median(load['loads'] / load['seconds'] for _, load in pairs):.1f}",
            ]
        )
    head = ["", "p50 at rest, ms", "p99 at rest, ms", "p50 while loading, ms", "p99 while loading, ms"]
    return markdown_table([*head, "ratio of p99", "ratio of requests/s", "loads/s"], rows)
