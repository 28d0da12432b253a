"""The right and the wrong graph of an exhibit, as `turnpike export` prepares them."""

from __future__ import annotations

from dataclasses import replace

from tests.export.museum.exhibit import Exhibit
from turnpike.export.network import Network
from turnpike.export.options import SourceOptions
from turnpike.export.output.model_bytes import to_bytes
from turnpike.export.prepared_graph import PreparedGraph
from turnpike.export.sources.load import load_source


def load_exhibit(exhibit: Exhibit) -> Network:
    return load_source(exhibit.network(), SourceOptions(inputs=list(exhibit.inputs), name="exhibit"))


def spoiled(exhibit: Exhibit, right: PreparedGraph) -> PreparedGraph:
    """The graph that the bug made."""
    model = right.model.clone()
    exhibit.spoil(model)
    return replace(right, model=model, data=to_bytes(model))
