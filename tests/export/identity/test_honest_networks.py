"""The graphs of honest networks are the same functions as the networks."""

from __future__ import annotations

import pytest

from tests.export.identity.honest.written import Honest
from tests.export.identity.honest_study import OWN, export, of_examples, of_presets, of_seeds, study
from turnpike.export.identity.decision import Verdict

# about one for each kind of network
QUICK = {
    "activation selu",
    "topk",
    "gate normalized",
    "gelu in opset 18",
    "norm RMSNorm",
    "BatchNorm folded into Linear",
    "weight norm",
    "best two experts",
    "bfloat16 weights",
    "a float64 network with LayerNorm and GELU",
    "autocast in bfloat16",
    "nested outputs",
    "cond of modules",
    "learned positions",
    "sines of positions",
    "rotary positions",
    "one-hot ids",
    "attention over words",
    "gather of the last step",
    "bidirectional GRU",
    "LSTM, opened",
    "recurrent highway",
    "attention with key padding",
    "fused attention with a bool mask",
    "encoder with padding",
    "map bilinear",
    "map norm GroupNorm",
    "CharacterBERT",
    "last states of a GRU, opened",
    "attention with relative buckets",
    "attention with rotary halves",
    "a softmax by lengths",
    "unit hyper-connections",
    "experts, gathered",
    "published vision transformer",
    "published LLaMA",
    "published BiDAF",
    "generated 0",
    "write a mask and its numbers",
    "write parts of a buffer",
    "write scatter at an input",
    "experts of chosen rows",
    "map fold",
}
# operators that no table has, by the name of the network
UNDECIDED = {
    "read nonzero": "the number of places where a mask of the input holds",
    "read a trace by einsum": "einsum of a diagonal",
    "read a diagonal by einsum": "einsum of a diagonal",
    "image grid_sample": "GridSample",
    "image antialiased": "_upsample_bilinear2d_aa",
}
# by name: what an export needs besides a decision
EXPORTED = {
    "time token shift": "the reference evaluator cannot pad by negative numbers",
    "fused attention with a bool mask": "rows that are masked completely",
    "fused attention with a float mask": "rows that are masked completely",
    "coqui's CBHG": "an optimizer of onnxruntime changes results",
    "published fastText": "onnxruntime's sigmoid loses NaN in a batch of one step",
    "read atan2": "torch.onnx has another angle on an axis",
    "read xlogy": "onnxruntime's sigmoid is 1e-8 where it should be 1e-30",
}
# an hour
THOROUGH = [pytest.mark.slow, pytest.mark.thorough]
STUDIED = [
    *(pytest.param(honest, marks=() if honest.name in QUICK else THOROUGH) for honest in OWN),
    *(pytest.param(honest, marks=THOROUGH) for honest in (*of_examples(), *of_presets())),
    *(pytest.param(honest, marks=THOROUGH) for honest in of_seeds(12)),
]


@pytest.mark.parametrize("honest", STUDIED, ids=lambda honest: honest.name)
def test_an_honest_network_is_identical(honest: Honest) -> None:
    decision = study(honest).decision
    if (reason := UNDECIDED.get(honest.name)) is not None:
        assert decision.verdict is Verdict.NOT_DECIDED, decision
        assert reason in str(decision)
    else:
        assert decision.verdict is Verdict.IDENTICAL, decision


@pytest.mark.slow
@pytest.mark.parametrize("name", EXPORTED)
def test_an_honest_network_is_exported(name: str) -> None:
    (honest,) = (honest for honest in OWN if honest.name == name)
    identity = export(honest).identity
    assert identity is not None
    assert identity.verdict == "identical"
