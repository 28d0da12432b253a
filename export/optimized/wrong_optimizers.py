"""Finds which of onnxruntime's optimizers makes another function of a file."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from turnpike.export.identity.decision import Verdict
from turnpike.export.optimized.decide_optimized import OptimizedGraph, decide_optimized_graph
from turnpike.export.optimized.normal_form import as_model, optimized_bytes

# onnxruntime's names of the optimizers that change graphs of floats on the CPU. It ignores names that it does
# not have, and does not list its own.
OPTIMIZERS = (
    "AttentionFusion",
    "BiasGeluFusion",
    "BiasSkipLayerNormFusion",
    "BiasSoftmaxFusion",
    "CastChainElimination",
    "CastElimination",
    "CommonSubexpressionElimination",
    "ConcatSliceElimination",
    "ConstantFolding",
    "ConstantSharing",
    "ConvActivationFusion",
    "ConvAddActivationFusion",
    "ConvAddFusion",
    "ConvBNFusion",
    "ConvMulFusion",
    "DivMulFusion",
    "DoubleQDQPairsRemover",
    "EliminateDropout",
    "EliminateIdentity",
    "EliminateSlice",
    "EmbedLayerNormFusion",
    "ExpandElimination",
    "FastGeluFusion",
    "FuseReluClip",
    "GatherSliceToSplitFusion",
    "GatherToSliceFusion",
    "GatherToSplitFusion",
    "GeluFusionL1",
    "GeluFusionL2",
    "GemmActivationFusion",
    "GemmSumFusion",
    "GemmTransposeFusion",
    "GroupQueryAttentionFusion",
    "LayerNormFusionL1",
    "LayerNormFusionL2",
    "MatMulActivationFusion",
    "MatMulAddFusion",
    "MatMulScaleFusion",
    "MatMul_BatchNormalization_Fusion",
    "MatmulTransposeFusion",
    "NchwcTransformer",
    "NhwcTransformer",
    "NoopElimination",
    "NotWhereFusion",
    "Pad_Fusion",
    "PreShapeNodeElimination",
    "QuickGeluFusion",
    "ReshapeFusion",
    "SimplifiedLayerNormFusion",
    "SkipLayerNormFusion",
    "SliceConcatToSpaceToDepthFusion",
    "TransposeOptimizer",
    "UnsqueezeElimination",
)


@dataclass(frozen=True)
class WrongOptimizer:
    """An optimizer, and the graph that onnxruntime makes of the file without it."""

    name: str
    graph: OptimizedGraph


def find_wrong_optimizer(data: bytes) -> WrongOptimizer | None:
    """The optimizer without which the optimized graph is the function of the file again, if there is one.

    Each is left out alone. One whose absence changes nothing is not decided about.

    Args:
        data: The content of a file whose optimized graph is another function.
    """
    undecided = None
    for name, graph in _without_each(data):
        if graph.decision.verdict is Verdict.IDENTICAL:
            return WrongOptimizer(name, graph)
        if graph.decision.verdict is Verdict.NOT_DECIDED and undecided is None:
            undecided = WrongOptimizer(name, graph)
    return undecided


def _without_each(data: bytes) -> Iterator[tuple[str, OptimizedGraph]]:
    """The graphs without one optimizer, where that makes a difference."""
    served = optimized_bytes(data)
    for name in OPTIMIZERS:
        other = optimized_bytes(data, (name,))
        if other != served:
            yield name, decide_optimized_graph(data, as_model(other))
