"""The float64 tests of operators notice errors: each mutation changes one place of the interpreters."""

from __future__ import annotations

import importlib.util
import tomllib
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.support.identity_operators import (
    aten_elementwise,
    aten_layers,
    aten_reductions,
    aten_shapes,
    aten_writes,
    onnx_control_flow,
    onnx_elementwise,
    onnx_layers,
    onnx_reductions,
    onnx_shapes,
    onnx_writes,
)
from tests.support.identity_operators.aten_case import AtenCase
from tests.support.identity_operators.onnx_case import OnnxCase
from tests.support.identity_operators.runs import PACKAGE, Interpreters, changed_interpreters

CASES: dict[str, AtenCase | OnnxCase] = {
    f"{table}/{name}": case
    for table, modules in {
        "aten": (aten_elementwise, aten_reductions, aten_shapes, aten_layers, aten_writes),
        "onnx": (onnx_elementwise, onnx_reductions, onnx_shapes, onnx_control_flow, onnx_layers, onnx_writes),
    }.items()
    for module in modules
    for name, case in module.CASES.items()
}


@dataclass(frozen=True)
class Mutation:
    """A text of a module of export/identity that becomes another, and how the cases that run it begin."""

    module: str
    old: str
    new: str
    cases: str

    def __str__(self) -> str:
        return f"{self.module}: {self.old} -> {self.new}"

    def is_noticed(self, interpreters: Interpreters) -> bool:
        """Whether a case has another result, or none."""
        for name, case in CASES.items():
            try:
                if name.startswith(self.cases) and case.difference(interpreters) is not None:
                    return True
            except Exception:
                return True
        return False


MUTATIONS = [
    Mutation(module, *texts)
    for module, mutations in tomllib.loads(
        Path(__file__).with_name("operator_mutations.toml").read_text()
    ).items()
    for texts in mutations
]


def test_mutations_fit_the_source() -> None:
    for mutation in MUTATIONS:
        spec = importlib.util.find_spec(f"{PACKAGE}.{mutation.module}")
        assert spec is not None
        assert spec.origin is not None
        assert Path(spec.origin).read_text().count(mutation.old) == 1, mutation
        assert any(name.startswith(mutation.cases) for name in CASES), mutation


# half a minute in all: each imports a copy of the interpreters
@pytest.mark.slow
@pytest.mark.parametrize("mutation", MUTATIONS, ids=str)
def test_mutation_is_noticed(mutation: Mutation) -> None:
    with changed_interpreters(mutation.module, mutation.old, mutation.new) as interpreters:
        assert mutation.is_noticed(interpreters)


def test_copy_without_mutation_is_not_noticed() -> None:
    original = Interpreters.load()
    same = Mutation("algebra.recurrent", "if reset_after:", "if reset_after:", "onnx/GRU")
    with changed_interpreters(same.module, same.old, same.new) as interpreters:
        assert interpreters.run_graph is not original.run_graph
        assert not same.is_noticed(interpreters)
    assert Interpreters.load() == original
