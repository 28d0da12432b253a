"""Predictions as columns, and results that show themselves in a terminal and in a notebook."""

from __future__ import annotations

from html.parser import HTMLParser
from typing import Any

import numpy as np
import pytest

from turnpike.client.results import Gates, Lesion, LesionCurve, to_columns
from turnpike.service.codec.tables.predictions import predictions_csv

LABELLED = {"label": "b", "probability": 0.75, "probabilities": {"a": 0.25, "b": 0.75}}
OTHER = {"label": "a", "probability": 1.0, "probabilities": {"a": 1.0, "b": 0.0}}


@pytest.mark.parametrize(
    "predictions",
    [
        [{**LABELLED, "outputs": {"y": [1, 2]}}, {**OTHER, "outputs": {"y": [2, 1]}}],
        [{**LABELLED, "outputs": {"y": [1, 2], "twice": 2}}, {**OTHER, "outputs": {"y": [2, 1], "twice": 4}}],
        [{"value": 1.5, "outputs": {"y": [1.5]}}, {"value": 2.5, "outputs": {"y": [2.5]}}],
        [{"outputs": {"y": [1.5, 2]}}, {"outputs": {"y": [2.5, 3]}}],
        [{"outputs": {"y": 1.5, "label": 2}}],
        # those of earlier versions
        [LABELLED, OTHER],
        [[0.5, 1.5], [2.5, 3.5]],
        [1, 2, 3],
        [True, False],
        [[[1, 2], [3, 4]]],
        [{"scores": LABELLED, "twice": [2, 4]}, {"scores": OTHER, "twice": [6, 8]}],
        [{"probabilities": LABELLED, "rank": 1}, {"probabilities": OTHER, "rank": 2}],
        [{"probabilities": [0.5, 0.5], "label": 1}],
    ],
)
def test_columns_are_those_of_the_csv(predictions: list[Any]) -> None:
    """Names and values are those that the service writes; outputs may have the names of other columns."""
    header, *lines = predictions_csv(predictions).splitlines()
    columns = to_columns(predictions)
    assert ",".join(columns) == header
    for index, line in enumerate(lines):
        assert ",".join(str(values[index]) for values in columns.values()) == line


def test_no_predictions_have_one_empty_column() -> None:
    assert {name: values.shape for name, values in to_columns([]).items()} == {"output": (0,)}


def gates(*names: str, mean: float = 0.25, carried: float = 0.75) -> Gates:
    records = [
        {"name": name, "layer": layer, "mean": mean, "carried": carried} for layer, name in enumerate(names)
    ]
    return Gates("net", "3", {}, records, {}, {})


def test_gates_are_arrays_by_key() -> None:
    found = gates("a", "b")
    assert found["name"].tolist() == ["a", "b"]
    np.testing.assert_array_equal(found["mean"], [0.25, 0.25])
    with pytest.raises(KeyError, match="expected one of name, layer, mean, carried, got 'depth'"):
        found["depth"]
    assert (len(found), [gate["layer"] for gate in found]) == (2, [0, 1])


def test_gates_are_a_table() -> None:
    """Without the keys that some gate lacks, and without figures that are lists."""
    records: list[dict[str, Any]] = [
        {"name": "a", "mean": 0.25, "quantiles": [0, 1], "depth": 3},
        {"name": "b", "mean": None, "quantiles": [0, 1]},
    ]
    frame = Gates("net", "3", {}, records, {}, {}).to_frame()
    assert (list(frame.index), list(frame.columns)) == (["a", "b"], ["mean"])
    np.testing.assert_array_equal(frame["mean"].astype(float), [0.25, np.nan])
    assert len(Gates("net", "3", {}, [], {}, {}).to_frame()) == 0
    assert repr(Gates("net", "3", {}, [], {}, {})).startswith("Gates of model 'net'")


def test_a_curve_prints_a_line_for_each_layer() -> None:
    layers: list[dict[str, Any]] = [
        {"layer": 0, "flipped": 2, "change": -0.5},
        {"layer": 1, "flipped": None},
        {"layer": 2},
    ]
    curve = LesionCurve({}, layers, {"rows": 7, "layers": layers})
    assert len(curve) == 3
    assert repr(curve).splitlines() == [
        "Lesion curve",
        "layer 0: 2 of 7 rows changed",
        "layer 1: no finite numbers without it",
        "layer 2",
    ]


def test_gates_print_a_line_each() -> None:
    assert repr(gates("first", "layer01.transform_gate")).splitlines() == [
        "Gates of model 'net', version 3: mean of T, and of C (carried)",
        "first                         T 0.25  C 0.75",
        "layer01.transform_gate        T 0.25  C 0.75",
    ]


def test_many_gates_are_not_all_printed() -> None:
    lines = repr(gates(*map(str, range(43)))).splitlines()
    assert len(lines) == 42
    assert lines[-1] == "and 3 more"


class Page(HTMLParser):
    """Texts, tags and widths of bars of a piece of HTML, all of whose elements must be closed in order."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.tags: list[str] = []
        self.texts: list[str] = []
        self.widths: list[str | None] = []
        self.urls: list[str | None] = []
        self.feed(text)
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.open.append(tag)
        self.tags.append(tag)
        self.urls += [value for name, value in attrs if name in {"src", "href"}]
        if tag == "rect":
            self.widths.append(dict(attrs)["width"])

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.texts.append(data.strip())


def test_a_notebook_shows_bars() -> None:
    """Each gate has a bar for T and one for C, each on a track; the table has a title, and loads nothing."""
    page = Page(gates("first", "second")._repr_html_())
    assert page.texts[:4] == ["Gates of model 'net', version 3", "gate", "mean of T", "carried"]
    assert page.texts[4:] == ["first", "0.25", "0.75", "second", "0.25", "0.75"]
    assert page.widths == ["160", "40", "160", "120"] * 2
    assert "script" not in page.tags
    assert page.urls == []


def test_bars_stay_on_their_track() -> None:
    """C of a projected carry may be any number."""
    page = Page(gates("wide", mean=-0.5, carried=1.5)._repr_html_())
    assert page.widths == ["160", "0", "160", "160"]
    assert page.texts[-2:] == ["-0.50", "1.50"]


def test_names_are_no_markup() -> None:
    hostile = "<script>alert('x')</script>&amp;"
    shown = Gates(hostile, "1", {}, gates(hostile).gates, {}, {})
    page = Page(shown._repr_html_())
    assert "script" not in page.tags
    assert hostile in page.texts
    # Python shows quotes in a name with the other kind around it
    assert page.texts[0] == f'Gates of model "{hostile}", version 1'


def test_a_lesion_prints_what_moved() -> None:
    report = {"closed": ["a"], "open": [], "shifted": {"b": -0.5}, "rows": 4}
    assert repr(Lesion({}, {}, np.array([1, 3]), report)) == "Lesion of a, b: 2 of 4 rows changed"
    assert repr(Lesion({}, {}, None, report)) == "Lesion of a, b"
