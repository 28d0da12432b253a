"""The tables of a GPU's results, and their place on the page."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from benchmarks.cuda.onnxruntime_run import BOUND, GRAPH, PLAIN, SERVICE
from benchmarks.cuda.page import (
    CUDA_PAGE,
    CUDA_RESULTS,
    NOT_MEASURED,
    REHEARSAL,
    cuda_tables,
    failures,
    write_cuda_page,
)
from benchmarks.errors import BenchmarkError
from benchmarks.report import format_results
from benchmarks.results.results_file import describe_machine

MACHINE = {"kind": "machine", **describe_machine()}
GPU = {"kind": "device", "device": "cuda", "gpu": "Test GPU, 80 GiB, driver for CUDA 13.2"}
CPU = {"kind": "device", "device": "cpu", "gpu": None}
PYTORCH = {"kind": "pytorch", "version": "2.13.0+cpu", "runs": False}


def verified(precision: str, **fields: Any) -> dict[str, Any]:
    return {"kind": "verified", "net": "mlp", "preset": "digits-10", "precision": precision, **fields}


def way(name: str, rows: int, p50_ms: float) -> dict[str, Any]:
    times = {"p50_ms": p50_ms, "p99_ms": 2 * p50_ms, "rows_per_second": 1000 * rows / p50_ms}
    return {"kind": "way", "net": "S", "precision": "fp32", "way": name, "rows": rows, **times}


RESULTS = [
    MACHINE,
    GPU,
    PYTORCH,
    verified("fp32", tensors=21, error=2e-6, torch_error=1e-6, comparison=None),
    verified(
        "fp16", tensors=21, error=2e-6, torch_error=1e-6, comparison="fp16: agrees with fp32 on 99 rows"
    ),
    verified("int8", failed="turnpike verify mlp-int8: gate03 differs"),
    *(
        {"kind": "answers", "net": "mlp", "precision": "fp32", "request": request, "share": share}
        for request, share in (("predictions", 0.04), ("gates", 0.5), ("lesions", 0.0))
    ),
    {"kind": "answers", "net": "mlp", "precision": "fp16", "failed": "mlp-fp16: expected 200, got 404"},
    *(way(SERVICE, rows, 0.4) for rows in (1, 8)),
    *(way(GRAPH, rows, 0.1) for rows in (1, 8)),
    way(BOUND, 1, 0.2),
    {"kind": "way", "net": "S", "precision": "fp32", "way": PLAIN, "failed": "S, fp32: no room"},
    {
        **{"kind": "load", "net": "S", "precision": "fp32", "server": "turnpike", "connections": 16},
        **{"rate": 12345.6, "p50_ms": 1.5, "p99_ms": 3.25},
    },
]


def test_all_tables_are_shown() -> None:
    text = cuda_tables(RESULTS)
    assert text.startswith("Test GPU, 80 GiB, driver for CUDA 13.2. ")
    assert "its build 2.13.0+cpu has no CUDA" in text
    for row in (
        "| mlp, fp32 | 21 | 2.0e-06 | 1.0e-06 | - |",
        "| mlp, fp16 | 21 | - | - | agrees with fp32 on 99 rows |",
        "| mlp, int8 | failed | - | - | - |",
        "| mlp, fp32 | 0.04 | 0.50 | 0.00 |",
        "| mlp, fp16 | failed | failed | failed |",
        "|  | 1 row | 8 rows |",
        f"| {GRAPH} | 10,000 | 80,000 |",
        f"| {GRAPH} | 0.10 / 0.20 | 0.10 / 0.20 |",
        f"| {GRAPH} | 4.00 | 4.00 |",
        f"| {BOUND} | 2.00 | - |",
        f"| {PLAIN} | failed | failed |",
        "| turnpike | 12,346 |",
        "| turnpike | 1.50 / 3.25 |",
    ):
        assert row in text, row
    assert "Failed: turnpike verify mlp-int8: gate03 differs." in text
    assert len(failures(RESULTS)) == 3
    assert format_results(RESULTS) == text


def test_results_may_lack_parts() -> None:
    """A run that was stopped early, or one of families only."""
    for count in range(2, len(RESULTS)):
        assert "Test GPU" in cuda_tables(RESULTS[:count])


def test_a_rehearsal_says_so(tmp_path: Path) -> None:
    """And never gets onto the page of the documentation."""
    results = tmp_path / "r.jsonl"
    results.write_text("".join(json.dumps(line) + "\n" for line in (MACHINE, CPU)))
    copy = tmp_path / "cuda.md"
    copy.write_text(CUDA_PAGE.read_text(encoding="utf-8"), encoding="utf-8")
    write_cuda_page(copy, results)
    assert REHEARSAL in copy.read_text(encoding="utf-8")
    before = CUDA_PAGE.read_bytes()
    with pytest.raises(BenchmarkError, match="expected the results of a GPU, got those of a rehearsal"):
        write_cuda_page(CUDA_PAGE, results)
    assert CUDA_PAGE.read_bytes() == before


def test_without_results_the_page_says_that_there_are_none(tmp_path: Path) -> None:
    copy = tmp_path / "cuda.md"
    copy.write_text("<!-- cuda -->\nold\n<!-- end of cuda -->\n", encoding="utf-8")
    write_cuda_page(copy, tmp_path / "none.jsonl")
    assert copy.read_text(encoding="utf-8") == f"<!-- cuda -->\n\n{NOT_MEASURED}\n\n<!-- end of cuda -->\n"


def test_the_page_holds_what_was_measured(tmp_path: Path) -> None:
    copy = tmp_path / "cuda.md"
    copy.write_text(CUDA_PAGE.read_text(encoding="utf-8"), encoding="utf-8")
    write_cuda_page(copy)
    assert copy.read_text(encoding="utf-8") == CUDA_PAGE.read_text(encoding="utf-8")
    assert (NOT_MEASURED in copy.read_text(encoding="utf-8")) == (not CUDA_RESULTS.exists())
