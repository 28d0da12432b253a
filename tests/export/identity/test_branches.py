"""Both branches of a condition are decided, whichever of them the rows of a batch take."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir
import pytest
import torch
from onnx import parser
from torch import Tensor, nn

from turnpike.export.graph_identity import decide_identity
from turnpike.export.identity.decide import decide
from turnpike.export.identity.decision import Decision, InputShape, Verdict
from turnpike.export.options import SourceOptions
from turnpike.export.prepared_graph import prepare
from turnpike.export.sources.load import load_source

CONDITIONS = {
    "a value": """
        total = ReduceSum<keepdims = 0>(x)
        limit = Constant<value_float = 1e30>()
        chosen = Greater(total, limit)
    """,
    "the number of rows": """
        rows = Shape<start = 0, end = 1>(x)
        limit = Constant<value_ints = [100]>()
        more = Greater(rows, limit)
        chosen = Squeeze(more)
    """,
}
RARE, USUAL = "then_y = Tanh(x)", "else_y = Relu(x)"


def graph(condition: str, rare: str = RARE, usual: str = USUAL) -> ir.Model:
    return ir.from_proto(
        parser.parse_model(
            f"""
            <ir_version: 8, opset_import: ["" : 18]>
            agraph (float[batch, 4] x) => (float[batch, 4] y) {{
                {CONDITIONS[condition]}
                y = If(chosen) <
                    then_branch = g1 () => (float[batch, 4] then_y) {{ {rare} }},
                    else_branch = g2 () => (float[batch, 4] else_y) {{ {usual} }}
                >
            }}
            """
        )
    )


def decided(reference: ir.Model, model: ir.Model) -> Decision:
    shapes = [[InputShape(np.dtype(np.float32), (rows, 4))] for rows in (1, 3)]
    return decide(reference, model, shapes)


@pytest.mark.parametrize("condition", CONDITIONS)
def test_equal_branches_are_identical(condition: str) -> None:
    decision = decided(graph(condition), graph(condition))
    assert decision.verdict is Verdict.IDENTICAL, decision


@pytest.mark.parametrize("condition", CONDITIONS)
@pytest.mark.parametrize("faulty", ["rare", "usual"])
def test_a_fault_in_one_branch_is_found(condition: str, faulty: str) -> None:
    """In that of rare sums, too, and in that of batches that are larger than those that run."""
    changed = {
        "rare": graph(condition, rare="then_y = Sin(x)"),
        "usual": graph(condition, usual="else_y = Sin(x)"),
    }
    decision = decided(graph(condition), changed[faulty])
    assert decision.verdict is not Verdict.IDENTICAL, decision
    if condition == "a value":
        assert decision.verdict is Verdict.DIFFERENT, decision


@pytest.mark.parametrize("condition", CONDITIONS)
def test_another_condition_is_not_identical(condition: str) -> None:
    changed = graph(condition)
    limit = next(node for node in changed.graph if node.op_type == "Constant")
    (name,) = limit.attributes
    limit.attributes[name] = (
        ir.AttrFloat32(name, 2e30) if name == "value_float" else ir.AttrInt64s(name, [101])
    )
    assert decided(graph(condition), changed).verdict is not Verdict.IDENTICAL


def test_branches_of_different_shapes_are_not_decided() -> None:
    """If they depend on sizes: one of them would not have been run."""
    model = graph("the number of rows", rare="then_y = Concat<axis = 0>(x, x)")
    decision = decided(model, model)
    assert decision.verdict is Verdict.NOT_DECIDED
    assert "branches have results of different shapes" in str(decision)


class Rare(nn.Module):
    """A branch for sums that no row has."""

    def forward(self, x: Tensor) -> Tensor:
        result: Tensor = torch.cond(x.sum() > 1e30, torch.tanh, torch.relu, (x,))
        return result


def test_a_fault_in_a_branch_of_a_network_that_no_row_takes_is_found() -> None:
    network = load_source(Rare().eval(), SourceOptions(inputs=["x:float32[batch,4]"], name="net"))
    prepared = prepare(network)
    assert decide_identity(network, prepared, prepared.model).verdict is Verdict.IDENTICAL
    changed = prepared.model.clone()
    branches = next(node for node in changed.graph if node.op_type == "If").attributes
    tanh = next(
        node
        for name in ("then_branch", "else_branch")
        for node in branches[name].as_graph()
        if node.op_type == "Tanh"
    )
    tanh.op_type = "Sin"
    assert decide_identity(network, prepared, changed).verdict is Verdict.DIFFERENT
