"""What a file says of its gates."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from service.api.model_facts import bias_of, gate_profile_json
from service.artifact.levers import override_biases
from service.artifact.manifest import Gate, Lever
from service.artifact.runtime import open_model
from tests.support.gates_app import manifest_of, profile_of
from tests.support.tiny_highway import highway
from tests.support.tiny_repository import opened, put, sealed

PLAIN = {"layer": 0, "kind": "coupled", "carry": "identity", "unit_axis": -1, "units": 2}


def test_it_is_the_manifests(tmp_path: Path) -> None:
    """Gates, profile and lesion curve as they were written, and the biases that the file has."""
    gated = highway()
    rows = np.random.default_rng(0).normal(size=(50, 4)).astype(np.float32)
    manifest = manifest_of(gated, profile_of(gated.gates, gated.gate_values(rows)))
    model = opened(put(tmp_path, data=sealed(gated, profile=manifest.profile)))
    answer = json.loads(gate_profile_json(model))
    assert manifest.profile is not None
    assert answer["profile"] == json.loads(manifest.profile.model_dump_json())
    assert answer["gates"] == [json.loads(gate.model_dump_json()) for gate in gated.gates]
    assert answer["lesion"] is None
    assert list(answer["biases"]) == [gate.name for gate in gated.gates]
    for n, gate in enumerate(gated.gates):
        told = np.array(answer["biases"][gate.name], np.float32)
        np.testing.assert_array_equal(told, gated.weights[f"layers.{n}.gate.bias"])


def test_a_bias_counts_as_t_does() -> None:
    """Its own part of a fused one, its sign turned where it is the carry's; null where nobody may move it."""
    biases = {"fused": np.array([[9, 9, 1, -2]], np.float16)}
    carry = Gate(name="a", levers=(Lever(tensor="fused", start=2, stop=4, sign=-1),), **PLAIN)
    told = bias_of(carry, biases)
    assert told is not None
    assert told.tolist() == [-1, 2]
    assert told.dtype == np.float32
    assert bias_of(Gate(name="b", **PLAIN), biases) is None


def test_a_higher_bias_is_a_wider_gate(tmp_path: Path) -> None:
    """As the network itself has it: what is told rises where a shift opens the gate."""
    gated = highway(layers=1)
    (gate,) = gated.gates
    before = bias_of(gate, gated.biases)
    moved = override_biases(gated.biases, shifted=[(gate, 1.0)])
    after = bias_of(gate, moved)
    assert before is not None
    assert after is not None
    assert (after > before).all()
    x = {"x": np.ones((1, 4), np.float32)}
    runtime = open_model(gated.model)
    assert (runtime.run({**x, **moved}, [gate.name])[0] > runtime.run(x, [gate.name])[0]).all()


@pytest.mark.parametrize("levers", [True, False])
def test_gates_that_nobody_may_move_have_none(tmp_path: Path, levers: bool) -> None:
    """Null, not an empty list: there may be a bias, and it is not known."""
    gated = highway(layers=1, levers=levers)
    (bias,) = json.loads(gate_profile_json(opened(put(tmp_path, data=sealed(gated)))))["biases"].values()
    assert (bias is not None) == levers
