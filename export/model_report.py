"""The report on a model that was written, by an export or a compression."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from turnpike.export.errors import ExportError
from turnpike.export.network import Rows
from turnpike.export.proved_graph import ProvedGraph
from turnpike.export.report.data import ReportData, gate_panel
from turnpike.service.artifact.manifest import Manifest


def report_data(
    path: Path,
    manifest: Manifest,
    proved: ProvedGraph,
    rows: Rows | None,
    warnings: tuple[str, ...],
    seconds: dict[str, float],
) -> ReportData:
    """The content of a report that every written file has."""
    runtime, graph = proved.runtime, proved.graph
    return ReportData(
        manifest=manifest,
        inputs=tuple(map(str, runtime.inputs)),
        outputs=tuple(str(tensor) for tensor in runtime.outputs if tensor.name in graph.public_outputs),
        size=path.stat().st_size,
        warnings=warnings,
        seconds=seconds,
        histograms=proved.proof.histograms,
        panel=gate_panel(runtime, manifest.gates, graph.biases, manifest.profile, rows, manifest.labels),
        comparison=proved.comparison,
    )


@contextmanager
def saying_model_is_complete(path: Path) -> Iterator[None]:
    """Add the model's path to the error if the report cannot be written, or if Ctrl-C stops it."""
    try:
        yield
    except OSError as error:
        raise ExportError(f"{error}; the model itself is complete: {path}") from error
    except KeyboardInterrupt as error:
        raise KeyboardInterrupt(f"the report was not written; the model is complete: {path}") from error
