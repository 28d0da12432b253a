"""Which branch of a gated sum carries, where that is hard to tell."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from tests.highways import edge_cases, recurrent
from tests.support.gate_graphs import instrument_net, open_graph


@pytest.mark.parametrize(
    ("bias", "guess"), [(-1.0, "a transform gate"), (0.2, "a transform gate"), (1.0, "a carry gate")]
)
def test_the_carry_of_two_unrelated_branches_is_guessed_from_the_bias(bias: float, guess: str) -> None:
    """A gate is taken for C if its bias is positive and not near zero, else for T. There is a warning."""
    net = edge_cases.Fusion(bias)
    model, instrumentation = instrument_net(net, (4,))
    runtime = open_graph(model)
    (gate,) = instrumentation.gates
    assert (gate.kind, gate.carry) == ("coupled", "projected")
    assert instrumentation.warnings == (
        f"layer00.transform_gate: cannot tell from the graph which branch is carried; "
        f"took the gate for {guess}, because its bias is {bias:.3g} on average",
    )
    x = torch.randn(3, 4)
    z = torch.sigmoid(net.gate(x)).detach()
    (t,) = runtime.run({"x": x.numpy()}, [gate.name])
    np.testing.assert_allclose(t, 1 - z if guess == "a carry gate" else z, atol=1e-6)


def test_a_cell_with_three_gates_has_two_transform_gates() -> None:
    """The gate of the new content is T, another gate is the carry, and the third is a second T."""
    net = recurrent.HighwayLstm(4)
    model, instrumentation = instrument_net(net, (4,), ("x", "below", "h", "c"))
    runtime = open_graph(model)
    assert [gate.kind for gate in instrumentation.gates] == ["independent", "independent"]
    assert len({gate.carry_gate for gate in instrumentation.gates}) == 1
    assert [(gate.layer, gate.depth) for gate in instrumentation.gates] == [(0, 0), (0, 1)]
    feeds = {
        name: np.random.default_rng(7).normal(size=(3, 4)).astype(np.float32)
        for name in ("x", "below", "h", "c")
    }
    x_and_h = torch.cat([torch.tensor(feeds["x"]), torch.tensor(feeds["h"])], 1)
    i = torch.sigmoid(net.i(x_and_h)).detach()
    values = runtime.run(feeds, [gate.name for gate in instrumentation.gates])
    assert any(np.allclose(value, i, atol=1e-6) for value in values)
