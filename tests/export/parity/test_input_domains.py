"""Input domains: the ids that a network knows, and the distribution of its data."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir
import pytest
import torch
from onnx import TensorProto, helper, numpy_helper
from torch import nn

from turnpike.export.errors import SourceError
from turnpike.export.input_spec import parse_input, parse_inputs
from turnpike.export.network import Network, Rows
from turnpike.export.parity.input_domains import InputDomain, accepted_ids, input_domains

ANY = helper.make_model(helper.make_graph([], "g", [], []))


def graph(*nodes: str, **weights: np.ndarray) -> ir.Model:
    """A graph with an input `ids`, of nodes written as `Op a b -> c`."""
    protos = []
    for node in nodes:
        op, _, rest = node.partition(" ")
        operands, _, result = rest.partition(" -> ")
        protos.append(helper.make_node(op, operands.split(), result.split()))
    ids = helper.make_tensor_value_info("ids", TensorProto.INT64, ["batch", 5])
    tensors = [numpy_helper.from_array(array, name) for name, array in weights.items()]
    return ir.from_proto(helper.make_model(helper.make_graph(protos, "g", [ids], [], tensors)))


@pytest.mark.parametrize(
    ("nodes", "ids"),
    [
        (["Gather table ids -> y"], (0, 10)),
        (["Reshape ids shape -> flat", "Cast flat -> c", "Gather table c -> y"], (0, 10)),
        (["Gather table ids -> y", "Gather small ids -> z"], (0, 3)),
        (["Add ids one -> more", "Gather table more -> y"], (-1, 9)),
        (["Sub ids one -> less", "Gather table less -> y"], (1, 11)),
        (["Sub one ids -> other", "Gather table other -> y"], None),
        (["Mod ids seven -> rest", "Gather table rest -> y"], (0, 10)),
        (
            [
                "Add ids one -> more",
                "Abs more -> some",
                "Gather small some -> y",
                "OneHot ids seven onoff -> z",
            ],
            (0, 2),
        ),
        (["Mul ids one -> y"], None),
        (["Gather ids one -> some", "Gather table some -> y"], (0, 10)),
        (["OneHot ids seven onoff -> y"], (0, 6)),
    ],
)
def test_the_smallest_embedding_table_limits_the_ids(nodes: list[str], ids: tuple[int, int] | None) -> None:
    """Ids may be reshaped, cast or shifted by a constant on the way."""
    model = graph(
        *nodes,
        table=np.zeros((11, 3), np.float32),
        small=np.zeros((4, 3), np.float32),
        shape=np.array([-1]),
        one=np.array([1]),
        seven=np.array(7),
        onoff=np.float32([0, 1]),
    )
    assert accepted_ids(model, model.graph.inputs[0]) == ids


def first_domain(network: Network, model: ir.Model | None = None) -> InputDomain:
    model = model or graph()
    return input_domains(network, model, [str(model.graph.inputs[0].name)])[network.inputs[0].name]


def test_ids_follow_from_the_table_or_the_rows() -> None:
    """The table decides even if the rows use few ids. Ids below zero only if rows have them."""
    inputs = parse_inputs(["ids:int64[batch,5]"])
    table = graph("Gather table ids -> y", table=np.zeros((11, 3), np.float32))
    rows = Rows({"ids": np.array([[-1, 3]])})
    assert first_domain(Network("s", "m", inputs), table) == InputDomain(0, 10)
    assert first_domain(Network("s", "m", inputs, rows=rows), table) == InputDomain(-1, 10)
    high = Rows({"ids": np.array([[2, 3]])})
    assert first_domain(Network("s", "m", inputs, rows=high), table) == InputDomain(0, 10)
    assert first_domain(Network("s", "m", inputs, rows=rows)) == InputDomain(-1, 3)
    assert first_domain(Network("s", "m", inputs)) == InputDomain(0, 1, guessed=True)
    assert first_domain(Network("s", "m", parse_inputs(["ids:uint8[batch,5]"]))) == InputDomain(
        0, 255, guessed=True
    )


def test_numbers_are_distributed_like_the_rows() -> None:
    """Cell by cell; a constant cell varies as much as the data overall."""
    x = np.float32([[1, 10, 5], [3, 30, 5]])
    domain = first_domain(Network("s", "m", parse_inputs(["x:float32[batch,3]"]), rows=Rows({"x": x})))
    np.testing.assert_allclose(domain.mean, [2, 20, 5])
    np.testing.assert_allclose(domain.sd, [1, 10, x.std()])
    any_length = first_domain(Network("s", "m", parse_inputs(["x:float32[batch,time]"]), rows=Rows({"x": x})))
    assert any_length.mean == pytest.approx(9)


def test_numbers_are_distributed_according_to_the_scaling() -> None:
    """A network that subtracts 128 and divides by 64 expects bytes."""
    net = nn.Module()
    net.register_buffer("shift", torch.tensor(128.0))
    net.register_buffer("scale", torch.tensor(1 / 64))
    domain = first_domain(Network("s", "m", parse_inputs(["x:float32[batch,3]"]), module=net))
    assert (domain.mean, domain.sd) == (128, 64)
    assert (
        first_domain(Network("s", "m", parse_inputs(["x:float32[batch,3]"]), module=nn.Module()))
        == InputDomain()
    )


@pytest.mark.parametrize("dtype", ["float16", "float64", "int8", "uint8", "bool"])
def test_values_have_the_dtype_of_the_input(dtype: str) -> None:
    values = InputDomain().draw(parse_input(f"x:{dtype}[batch,50]"), {"batch": 4}, np.random.default_rng(0))
    assert values.dtype == np.dtype(dtype)
    assert values.shape == (4, 50)
    assert len(np.unique(values)) > 1


def test_narrower_ranges_of_ids_are_tried_in_turn() -> None:
    assert [domain.high for domain in InputDomain(0, 40).narrower()] == [31, 7, 3, 1, 0]
    assert [domain.high for domain in InputDomain(2, 9).narrower()] == [7, 3]


def test_a_domain_is_narrowed_to_a_range() -> None:
    """The distribution stays if most of it is inside; ids keep to both ranges."""
    inside = InputDomain(mean=1.0, sd=2.0).within(-2, 4)
    assert (inside.mean, inside.sd, inside.limits) == (1, 2, (-2, 4))
    outside = InputDomain().within(100, 200)
    assert (outside.mean, outside.sd) == (150, 25)
    numbers = outside.draw(parse_input("x:float32[batch,500]"), {"batch": 4}, np.random.default_rng(0))
    assert (numbers.min(), numbers.max()) == (100, 200)
    assert numbers.std() == pytest.approx(25, abs=2)
    ids = InputDomain(0, 40).within(2.5, 7.5)
    assert (ids.low, ids.high) == (3, 7)


def test_rows_and_ids_outside_of_a_range_are_refused() -> None:
    rows = Rows({"x": np.float32([[0, 9]])})
    network = Network("s", "m", parse_inputs(["x:float32[batch,2]"]), rows=rows, ranges={"x": (-5, 5)})
    with pytest.raises(SourceError, match=r"^--data: x: expected values from -5 to 5 .*, got 0 to 9"):
        first_domain(network)
    network = Network("s", "m", parse_inputs(["ids:int64[batch,5]"]), ranges={"ids": (2.2, 2.8)})
    with pytest.raises(SourceError, match="--input-range: ids: no number that it takes is from 2.2 to 2.8"):
        first_domain(network)
