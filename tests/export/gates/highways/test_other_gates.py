"""Sigmoids that multiply something and form no highway are listed with the reason."""

from __future__ import annotations

from collections import Counter

import numpy as np
import onnx_ir as ir
import pytest

from tests.highways import impostors
from tests.highways.onnx_text import JOINED_IN_OLD_OPSET, JOINED_WITH_ONE_GATE, model_from_text
from tests.support.gate_graphs import instrument_proto, trace_net
from turnpike.export.gates.highways.other_gates import NOTHING_CARRIED, UNDECIDED, UNGATED_SUM
from turnpike.export.gates.instrument import Instrumentation, instrument


@pytest.mark.slow
def test_other_networks_have_no_gates() -> None:
    """The graph is not changed, and the sigmoids that multiply something are listed."""
    model = trace_net(impostors.AllImpostors(), impostors.SHAPE)
    before = ir.to_proto(model).SerializeToString()
    found = instrument(model)
    assert found == Instrumentation((), {}, (), found.other_gates)
    assert ir.to_proto(model).SerializeToString() == before
    assert Counter(other.reason for other in found.other_gates) == {
        NOTHING_CARRIED: 1,
        UNGATED_SUM: 10,
        UNDECIDED: 12,
    }


def test_joined_branches_of_old_opsets_are_found_by_value() -> None:
    """Unstacked forms need operators of opset 13. The graph stays valid."""
    _, instrumentation, runtime = instrument_proto(model_from_text(JOINED_IN_OLD_OPSET))
    assert [gate.kind for gate in instrumentation.gates] == ["coupled"]
    assert instrumentation.other_gates == ()
    assert runtime.run({"x": np.ones((5, 4), np.float32)}, ["y"])[0].shape == (5, 4)


def test_a_stacked_sum_that_is_the_input_of_a_layer_is_no_part_of_its_sum() -> None:
    """Its gate is not taken for the carry gate of the layer."""
    _, instrumentation, _ = instrument_proto(model_from_text(JOINED_WITH_ONE_GATE))
    assert instrumentation.gates == ()
    assert [other.value for other in instrumentation.other_gates] == ["t", "t1"]
