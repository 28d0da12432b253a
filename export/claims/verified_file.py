"""What a verification knows about a file, for the checks of its claims."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import onnx_ir as ir

from turnpike.export.identity.decision import Decision
from turnpike.export.network import AnySource, Network
from turnpike.export.optimized.decide_optimized import OptimizedGraph
from turnpike.export.parity.rounding import Rounding
from turnpike.export.precision.compare import Comparison
from turnpike.export.prepared_graph import PreparedGraph
from turnpike.service.artifact.manifest import Manifest
from turnpike.service.artifact.runtime import Runtime


@dataclass(frozen=True)
class VerifiedFile:
    """A file that computes what its source does, and what was computed to show that.

    Attributes:
        path: The file.
        runtime: The file, open.
        manifest: Its manifest.
        model: Its graph.
        against: The source, as the user gave it.
        network: The source, with the ranges of the file. That of a compressed file has a graph, in which
            the removed units are carried.
        graph: The graph that was exported here from the source. That of a compressed file was cut here.
        proof: The proof of the file, or of `graph` in fp32 if the file has a lower precision.
        identity: The decision about that graph for every input.
        optimized: What onnxruntime makes of the file.
        comparison: How the lower precision of the file compares with fp32.
    """

    path: Path
    runtime: Runtime
    manifest: Manifest
    model: ir.Model
    against: AnySource
    network: Network
    graph: PreparedGraph
    proof: Rounding
    identity: Decision
    optimized: OptimizedGraph
    comparison: Comparison | None = None

    @property
    def is_fp32(self) -> bool:
        """Whether the file itself was proved."""
        return self.manifest.precision == "fp32"

    @property
    def proved_model(self) -> ir.Model:
        """The graph that was proved."""
        return self.model if self.is_fp32 else self.graph.model
