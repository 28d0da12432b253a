"""Operators of honest networks in float64: program and graph compute what PyTorch does."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from tests.export.identity.honest_study import OWN
from turnpike.export.identity.algebra.arithmetic import Algebra
from turnpike.export.identity.algebra.arithmetic.terms import Term, kind_of
from turnpike.export.identity.aten.run_program import run_program
from turnpike.export.identity.numbers.error_bound import ATOM
from turnpike.export.identity.numbers.reals import Reals
from turnpike.export.identity.onnx.run_graph import run_graph
from turnpike.export.input_spec import parse_input
from turnpike.export.options import SourceOptions
from turnpike.export.prepared_graph import prepare
from turnpike.export.sources.load import load_source

NAMES = [
    *(
        f"activation {name}"
        for name in ("exp2", "log10", "logit", "sinc", "fraction", "logaddexp", "whole part")
    ),
    *("activation remainder", "activation quotient in floor", "gate normalized in max", "gelu in opset 18"),
    *("topk", "sorted rows", "gather of the last step", "index of the last step", "sines of positions"),
    *("fused attention, scaled", "fused attention with a bool mask", "attention in opset 23"),
    *("statistics over any time", "map bilinear", "map bicubic", "map nearest", "map unfold", "halved ids"),
]
QUICK = ("topk", "gather of the last step", "map bicubic", "activation fraction")
SIZES = {"batch": 3, "time": 4}


@pytest.mark.parametrize(
    "name",
    [
        name if name in QUICK else pytest.param(name, marks=[pytest.mark.slow, pytest.mark.thorough])
        for name in NAMES
    ],
)
def test_a_network_in_float64(name: str) -> None:
    honest = next(honest for honest in OWN if honest.name == name)
    torch.manual_seed(7)
    net = honest.make().eval()
    graph = prepare(load_source(net, SourceOptions(inputs=honest.inputs, name="net")), honest.opset)
    assert graph.traced is not None
    rng = np.random.default_rng(0)
    arrays = []
    for spec in map(parse_input, honest.inputs):
        shape = spec.shape(**{dim: SIZES[dim] for dim in spec.dims if isinstance(dim, str)})
        drawn = rng.normal(size=shape) if spec.dtype == "float32" else rng.integers(0, 2, shape)
        arrays.append(drawn.astype(spec.dtype))
    with torch.no_grad():
        expected = net(*(torch.from_numpy(array) for array in arrays)).numpy()
    algebra = Algebra(Reals(), symbolic_sizes=False)
    terms = [Term(array.astype(np.float64)[None], kind_of(array), ATOM) for array in arrays]
    program = run_program(graph.traced.program, algebra, terms).outputs[0]
    result = run_graph(graph.model, algebra, terms).outputs[graph.public_outputs[0]]
    for value in (program, result):
        np.testing.assert_allclose(algebra.term(value).data[0], expected, rtol=2e-4, atol=2e-5)
