"""Puts a fitted preprocessing before a network, and compares it with what it was translated from."""

from __future__ import annotations

import math
import warnings
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from torch import nn

from turnpike.export.errors import SourceError, UsageError, one_line
from turnpike.export.network import Messages, Network
from turnpike.export.sources.preprocess.layers import Chosen, Preprocessed
from turnpike.export.sources.preprocess.translate import Need, Translation, translate
from turnpike.models.data.features import describe_features
from turnpike.service.artifact.manifest import Feature

# rows on which the layers are compared with the transformer
COMPARED_ROWS = 512
# larger differences mean that float32 has too few digits for the columns, or that something is wrong
MAX_DIFFERENCE = 1e-3


def with_preprocessing(network: Network, transformer: Any) -> Network:
    """The network behind a fitted transformer of scikit-learn, so that it takes the rows from before.

    A note says how far the layers, in float32, are from what the transformer computes in float64.
    """
    where = f"preprocess: {type(transformer).__name__}"
    module, values = _expect_module(network)
    translation = translate(transformer, where)
    used = [place for place, need in enumerate(translation.needs) if need is not None]
    needs = [need for need in translation.needs if need is not None]
    if not used:
        raise SourceError(f"{where}: expected a transformer that uses a column, got one that uses none")
    fitted = [str(name) for name in getattr(transformer, "feature_names_in_", ())]
    names = fitted or [f"x{place}" for place in range(len(translation.needs))]
    before = _before(translation, used)
    with torch.no_grad():
        got = before(torch.zeros(2, len(used))).shape[1]
    if got != values:
        raise SourceError(
            f"{where}: expected the {values} values that the network takes ({network.inputs[0]}), got {got}"
        )
    rows = draw_rows(needs)
    table = _as_fitted(rows, needs, used, len(translation.needs), fitted)
    distance = distance_from(transformer, table, before, rows, where)
    spec = network.inputs[0]
    notes = [
        f"{type(transformer).__name__} is a part of the file, within {distance:.0e} of its transform in "
        f"float64 ({len(rows)} rows drawn by what it was fitted to)"
    ]
    if left_out := [name for place, name in enumerate(names) if place not in used]:
        notes.append(f"the file does not take columns that are not used: {', '.join(left_out)}")
    has_words = any(need.form.kind == "category" for need in needs)
    features = [_feature(names[place], need) for place, need in zip(used, needs, strict=True)]
    return replace(
        network,
        inputs=(replace(spec, dtype="float32", dims=(spec.dims[0], len(used))),),
        module=Preprocessed(before, module).eval(),
        features=tuple(features) if fitted or has_words else (),
        unused=tuple(left_out),
    ).with_messages(Messages(notes=tuple(notes)))


def with_ranges(network: Network) -> Network:
    """The network with the ranges of its columns, which those of the rows are.

    Raises:
        UsageError: There are no rows, and cells are more than plain numbers.
    """
    if network.rows is None:
        if any(not feature.is_plain for feature in network.features):
            raise UsageError(
                "preprocess: expected --data with rows of the table, since their words and blanks, and the "
                "ranges of its columns, go into the file"
            )
        return replace(network, features=()).with_messages(
            Messages(notes=("the names of the columns are not in the file: --data gives their ranges",))
        )
    rows = torch.from_numpy(network.rows.all_known(network.inputs[0].name))
    described = describe_features(
        [feature.name for feature in network.features],
        rows,
        [feature.form for feature in network.features],
        [feature.blanks for feature in network.features],
    )
    return replace(network, features=tuple(Feature.model_validate(entry) for entry in described))


def draw_rows(needs: Sequence[Need], count: int = COMPARED_ROWS) -> np.ndarray:
    """Rows such as those that were fitted, with blanks and unseen values where they are allowed."""
    random = np.random.default_rng(0)
    columns = []
    for need in needs:
        if need.form.kind == "category":
            column = random.integers(0, len(need.form.categories) + need.unseen, count).astype(float)
        elif need.form.kind == "boolean":
            column = random.integers(0, 2, count).astype(float)
        elif need.choices:
            column = random.choice(np.array(need.choices), count)
            column[random.random(count) < 0.1 * need.unseen] = max(need.choices) + 1
        else:
            column = random.normal(need.center, need.spread, count)
        column[random.random(count) < 0.1 * need.blanks] = math.nan
        columns.append(column.astype(np.float32))
    return np.stack(columns, 1)


def distance_from(transformer: Any, table: Any, before: nn.Module, rows: np.ndarray, where: str) -> float:
    """How far the layers are from a transformer's `transform`, by the spread of each of its values, or 1.

    Args:
        transformer: The transformer.
        table: The rows as it takes them.
        before: The layers.
        rows: The rows as they take them.
        where: Names the transformer in messages.

    Raises:
        SourceError: Further than `MAX_DIFFERENCE`, or the transformer cannot read such rows.
    """
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of unseen values, for example
            expected = transformer.transform(table)
    except Exception as error:  # it may have functions of the user
        raise SourceError(
            f"{where}: its transform fails on rows such as the fitted ones ({one_line(error)})"
        ) from error
    expected = expected.toarray() if hasattr(expected, "toarray") else expected
    expected = np.asarray(expected, dtype=float)
    with torch.no_grad():
        actual = before(torch.from_numpy(rows)).double().numpy()
    if expected.shape != actual.shape:
        raise SourceError(
            f"{where}: expected {actual.shape[1]} values of its transform, got {expected.shape[1]}"
        )
    present = np.isfinite(expected)
    scale = np.maximum(1, np.where(present, np.abs(expected), 0).std(0))
    difference = np.where(present, np.abs(actual - expected) / scale, 0)
    if not (present == np.isfinite(actual)).all() or not difference.max() <= MAX_DIFFERENCE:
        value = int(
            np.argmax(np.where(present == np.isfinite(actual), np.nan_to_num(difference, nan=9), 9).max(0))
        )
        raise SourceError(
            f"{where}: value {value} is another one than that of its transform in float64, by up to "
            f"{difference[:, value].max():.1e}: float32 may have too few digits for its columns (subtract a "
            "constant before), or it has a setting that is not known"
        )
    return float(difference.max())


def _expect_module(network: Network) -> tuple[nn.Module, int]:
    """The module of a network, and the number of values in its rows."""
    if network.module is None or network.training is not None:
        raise UsageError("preprocess: expected a PyTorch module as the network, which does not have its own")
    spec = network.inputs[0]
    if len(network.inputs) != 1 or len(spec.dims) != 2 or not isinstance(spec.dims[1], int):
        shapes = ", ".join(map(str, network.inputs))
        raise UsageError(f"preprocess: expected a network with one input of rows and columns, got {shapes}")
    if spec.dtype != "float32":
        raise UsageError(f"preprocess: expected a network that takes float32, got {spec}")
    return network.module, spec.dims[1]


def _before(translation: Translation, used: Sequence[int]) -> nn.Module:
    """The layers for rows that have the used columns only."""
    if len(used) == len(translation.needs):
        return translation.layer
    # columns that are not used are never read, so any number may stand for them
    places = [used.index(place) if place in used else 0 for place in range(len(translation.needs))]
    return nn.Sequential(Chosen(places), translation.layer)


def _feature(name: str, need: Need) -> Feature:
    form = need.form
    return Feature(
        name=name,
        low=0,
        high=0,
        mean=0,
        sd=0,
        kind=form.kind,
        categories=form.categories,
        blanks=need.blanks,
    )


def _as_fitted(
    rows: np.ndarray, needs: Sequence[Need], used: Sequence[int], columns: int, fitted: Sequence[str]
) -> Any:
    """Rows of the layers as the transformer takes them: a DataFrame if it was fitted to one."""
    cells: list[list[Any]] = [[math.nan] * len(rows) for _ in range(columns)]
    for place, need, column in zip(used, needs, rows.T, strict=True):
        cells[place] = [_cell(need, float(number)) for number in column]
    if fitted:
        import pandas

        return pandas.DataFrame(dict(zip(fitted, cells, strict=True)))
    if all(need.form.kind == "number" for need in needs):
        return np.array(cells, dtype=float).T
    return np.array(cells, dtype=object).T


def _cell(need: Need, number: float) -> Any:
    if math.isnan(number):
        return need.blank
    if need.form.kind == "category":
        place = int(number)
        words = need.form.categories
        return words[place] if place < len(words) else "a word that was never seen"
    return bool(number) if need.form.kind == "boolean" else number
