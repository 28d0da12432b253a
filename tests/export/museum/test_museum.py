"""The export refuses each wrong graph, as if the exporter had the bug again, and accepts the right one."""

from __future__ import annotations

import pytest

from tests.export.museum.collection import EXHIBITS
from tests.export.museum.exhibit import Exhibit
from tests.export.museum.graphs import load_exhibit, spoiled
from turnpike.export.errors import ParityError
from turnpike.export.prepared_graph import prepare
from turnpike.export.proved_graph import prove_graph
from turnpike.export.steps import Steps

# how errors of a decision begin; every other one is about batches
DECISIONS = ("expected the same function of every input", "expected the network's weights bit for bit")


@pytest.mark.parametrize("exhibit", EXHIBITS, ids=lambda exhibit: exhibit.name)
def test_the_wrong_graph_is_refused_and_the_right_one_accepted(exhibit: Exhibit) -> None:
    network = load_exhibit(exhibit)
    right = prepare(network)
    prove_graph(right, network, 0, Steps())
    with pytest.raises(ParityError) as error:
        prove_graph(spoiled(exhibit, right), network, 0, Steps())
    message = str(error.value)
    assert any(text in message for text in DECISIONS) == (exhibit.noticed == "decided"), message


def test_there_are_many_exhibits_and_no_two_of_one_bug() -> None:
    assert len(EXHIBITS) >= 20
    for attribute in ("name", "url"):
        assert len({getattr(exhibit, attribute) for exhibit in EXHIBITS}) == len(EXHIBITS)
