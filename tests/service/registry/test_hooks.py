"""Hooks, and the signature of a model with them."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.support.manifests import MANIFEST, stored_input
from tests.support.tiny_highway import highway
from tests.support.tiny_repository import load_model, put_model, with_manifest
from turnpike import Hooks, Tensor
from turnpike.service.artifact.manifest import Sample
from turnpike.service.errors import ModelFileError
from turnpike.service.registry.hooked_runner import HookedRunner

ID = Tensor("customer_id", "int64", ("batch",))
RISK = Tensor("risk", "float32", ("batch",))


def same(*arrays: Any) -> Any:
    return arrays[-1]


async def later(rows: Any) -> Any:
    return rows


class Later:
    """An object that is called like a coroutine function."""

    async def __call__(self, rows: Any) -> Any:
        return rows


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"before": later}, "before: expected a function, which runs in a thread, got a coroutine function"),
        ({"after": 3}, "after: expected a function, which runs in a thread, got 3"),
        ({"inputs": (ID,)}, "inputs: expected before"),
        ({"before": same, "inputs": ()}, "inputs: expected at least one tensor"),
        (
            {"before": same, "inputs": (ID, ID)},
            "inputs: expected each name once, got customer_id, customer_id",
        ),
        ({"before": same, "inputs": ("x",)}, "inputs: expected tensors, got 'x'"),
        ({"outputs": (RISK,)}, "outputs: expected after"),
        (
            {"before": Later()},
            "before: expected a function, which runs in a thread, got a coroutine function",
        ),
        ({"after": len}, r"after: expected a function with the parameters \(rows, outputs\), got len\(obj"),
        (
            {"before": lambda: {}},
            r"before: expected a function with the parameters \(rows\), got <lambda>\(\)",
        ),
        ({"before": same, "inputs": ID}, r"inputs: expected a tuple of tensors, such as .*, got Tensor\("),
        ({"before": same, "inputs": {"id": ID}}, "inputs: expected a tuple of tensors"),
        ({"after": same, "outputs": "risk"}, "outputs: expected a tuple of tensors, .*, got 'risk'"),
        ({"after": same, "outputs": (replace(RISK, dtype=float),)}, "risk: expected a dtype of .*'float'"),
        ({"after": same, "outputs": (replace(RISK, name=3),)}, "outputs: expected names that are strings"),
        ({"after": same, "outputs": (replace(RISK, dims="batch"),)}, "risk: expected dims .*, got 'batch'"),
        ({"after": same, "outputs": (replace(RISK, dims=(-1,)),)}, r"risk: expected dims .*, got \(-1,\)"),
        (
            {"after": same, "outputs": (replace(RISK, dtype="text"),)},
            "outputs: risk: expected a dtype of bool",
        ),
    ],
)
def test_hooks_that_make_no_sense_are_refused(fields: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Hooks(**fields)


def test_a_function_that_does_not_say_its_parameters_is_taken() -> None:
    """As some functions in C."""
    assert Hooks(before=dict).before is dict


def test_lists_become_tuples() -> None:
    hooks: Any = Hooks(before=same, inputs=[Tensor("id", "int64", ["batch"])])  # type: ignore[arg-type]
    assert hooks.inputs == (Tensor("id", "int64", ("batch",)),)


def test_a_model_without_hooks_has_a_plain_runner(tmp_path: Path) -> None:
    model = load_model(put_model(tmp_path))
    assert not isinstance(model.batcher.runner, HookedRunner)
    assert model.batcher.runner.inline


def test_the_signature_has_the_tensors_of_the_hooks(tmp_path: Path) -> None:
    hooks = Hooks(before=same, after=same, inputs=(ID,), outputs=(RISK,))
    signature = load_model(put_model(tmp_path), hooks=hooks).signature
    assert list(signature.inputs.values()) == [ID]
    assert list(signature.outputs) == ["logits", "risk"]
    assert {"logits", "risk"} < signature.splittable


@pytest.mark.parametrize(
    ("hooks", "message"),
    [
        (
            Hooks(before=same, inputs=(Tensor("id", "int64", ("rows",)),)),
            "id: expected the first dimension 'batch', as in the network, got id:int64[rows]",
        ),
        (Hooks(before=same, inputs=(Tensor("id", "int64", ()),)), "id: expected the first dimension 'batch'"),
        (
            Hooks(after=same, outputs=(Tensor("logits", "float32", ("batch",)),)),
            "outputs: expected names that the network does not have, got 'logits'",
        ),
        (
            Hooks(before=same, inputs=(Tensor("layer00.transform_gate.bias", "float32", ("batch",)),)),
            "inputs: expected names that no weight has",
        ),
    ],
)
def test_a_version_that_the_hooks_do_not_fit_is_not_served(
    tmp_path: Path, hooks: Hooks, message: str
) -> None:
    gated = highway()
    if hooks.inputs and "bias" in hooks.inputs[0].name:
        hooks = replace(hooks, inputs=(replace(hooks.inputs[0], name=next(iter(gated.biases))),))
    with pytest.raises(ModelFileError, match="hooks: ") as error:
        load_model(put_model(tmp_path, data=with_manifest(gated)), hooks=hooks)
    assert message in str(error.value)
    assert error.value.public_message == "its hooks do not fit its network"


def test_sample_rows_of_other_inputs_are_left_out(tmp_path: Path) -> None:
    """They could not be posted unchanged, as promised."""
    sample = Sample(label="a", inputs=(stored_input("x", [0.0] * 4),))
    file = put_model(tmp_path, data=with_manifest(highway(), samples=(sample,)))
    manifests = [
        load_model(file, hooks=hooks).manifest
        for hooks in (None, Hooks(after=same), Hooks(before=same, inputs=(ID,)))
    ]
    assert [manifest and len(manifest.samples) for manifest in manifests] == [1, 1, 0]
    assert manifests[2] is not None
    assert manifests[2].labels == ("a", "b", "c")
    assert MANIFEST.samples == ()
