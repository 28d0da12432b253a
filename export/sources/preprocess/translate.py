"""Translates fitted transformers of scikit-learn into layers, and finds what their columns hold.

A pipeline is read from its end: an encoder says which words its columns have, and the steps before it, such
as an imputer, pass that on to the columns of the table.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from numbers import Real
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from turnpike.common.columns import ColumnForm, is_blank, word_of
from turnpike.export.errors import SourceError
from turnpike.export.sources.preprocess.layers import (
    Above,
    Branches,
    Each,
    Fill,
    OneHot,
    Ordinal,
    RowNorm,
    Scale,
    ScaleToRange,
    floats,
)

# functions of a FunctionTransformer that are known
FUNCTIONS: Mapping[Any, Callable[[Tensor], Tensor]] = {
    np.log: torch.log,
    np.log1p: torch.log1p,
    np.log2: torch.log2,
    np.log10: torch.log10,
    np.exp: torch.exp,
    np.expm1: torch.expm1,
    np.sqrt: torch.sqrt,
    np.square: torch.square,
    np.abs: torch.abs,
}
NUMBER = ColumnForm()
REMEDY = "apply it to the rows before, or write it as a layer of the module"


@dataclass(frozen=True)
class Need:
    """What a transformer needs of one of its columns.

    Attributes:
        form: What the column holds.
        blanks: Whether it may be blank.
        unseen: Whether it may have another value than those that were fitted.
        blank: What a blank was where it was fitted.
        choices: The numbers that were fitted, if a number is one of several.
        center: A typical number, by what was fitted.
        spread: How far numbers typically are from it.
    """

    form: ColumnForm = NUMBER
    blanks: bool = False
    unseen: bool = False
    blank: Any = math.nan
    choices: tuple[float, ...] = ()
    center: float = 0.0
    spread: float = 1.0


@dataclass(frozen=True)
class Translation:
    """A transformer as a layer, and what it needs of each column; None for one that it does not use."""

    layer: nn.Module
    needs: tuple[Need | None, ...]


def translate(transformer: Any, where: str, after: Sequence[Need] | None = None) -> Translation:
    """Translate a fitted transformer.

    Args:
        transformer: A transformer, or a ColumnTransformer, FeatureUnion or Pipeline of them.
        where: Names it in messages.
        after: What the next transformer needs of each value of this one; None for numbers.

    Raises:
        SourceError: It is not fitted, or none that can be translated. The message names it.
    """
    from sklearn import compose, pipeline
    from sklearn.exceptions import NotFittedError
    from sklearn.utils.validation import check_is_fitted

    if not hasattr(transformer, "transform"):
        raise SourceError(f"{where}: expected a fitted transformer, got {type(transformer).__name__}")
    try:
        check_is_fitted(transformer)
    except NotFittedError:
        raise SourceError(f"{where}: expected a fitted transformer: call its fit before") from None
    if isinstance(transformer, pipeline.Pipeline):
        return _pipeline(transformer, where, after)
    if isinstance(transformer, compose.ColumnTransformer):
        return _column_transformer(transformer, where, after)
    if isinstance(transformer, pipeline.FeatureUnion):
        return _union(transformer, where, after)
    for kind in type(transformer).__mro__:
        if kind.__module__.startswith("sklearn.") and kind.__name__ in TRANSLATORS:
            if type(transformer).transform is not kind.transform:  # type: ignore[attr-defined]
                break
            return TRANSLATORS[kind.__name__](transformer, where, after)
    raise _unknown(transformer, where)


def _unknown(transformer: Any, where: str, what: str = "") -> SourceError:
    name = type(transformer).__name__
    return SourceError(f"{where}: {name}{what} cannot be a part of the network: {REMEDY}")


def _pipeline(pipeline: Any, where: str, after: Sequence[Need] | None) -> Translation:
    layers: list[nn.Module] = []
    needs: Sequence[Need | None] | None = after
    for name, step in reversed(pipeline.steps):
        if step is None or (isinstance(step, str) and step == "passthrough"):
            continue
        step_name = f"{where}, step {name!r}"
        if needs is not None and None in needs:
            raise SourceError(f"{step_name}: a later step drops one of its columns: {REMEDY}")
        translated = translate(step, step_name, _all(needs))
        layers.append(translated.layer)
        needs = translated.needs
    if needs is None:
        raise SourceError(f"{where}: expected a step that does something, got none")
    return Translation(nn.Sequential(*reversed(layers)), tuple(needs))


def _all(needs: Sequence[Need | None] | None) -> tuple[Need, ...] | None:
    return None if needs is None else tuple(need for need in needs if need is not None)


def _column_transformer(transformer: Any, where: str, after: Sequence[Need] | None) -> Translation:
    if after is not None and any(need.form != NUMBER for need in after):
        raise SourceError(f"{where}: an encoder cannot follow a ColumnTransformer: put it inside")
    names = list(getattr(transformer, "feature_names_in_", ()))
    needs: list[Need | None] = [None] * transformer.n_features_in_
    weights = transformer.transformer_weights or {}
    branches = []
    for name, part, chosen in transformer.transformers_:
        columns = _places(chosen, names, transformer.n_features_in_)
        if not columns or (isinstance(part, str) and part == "drop"):
            continue
        inner = f"{where}, transformer {name!r}"
        if isinstance(part, str):
            translated = Translation(nn.Identity(), (Need(),) * len(columns))
        else:
            translated = translate(part, inner)
        for place, need in zip(columns, translated.needs, strict=True):
            column = names[place] if names else f"column {place}"
            needs[place] = _both(needs[place], need, f"{inner}, {column}")
        branches.append((columns, translated.layer, float(weights.get(name, 1))))
    return Translation(Branches(branches), tuple(needs))


def _union(union: Any, where: str, after: Sequence[Need] | None) -> Translation:
    if after is not None and any(need.form != NUMBER for need in after):
        raise SourceError(f"{where}: an encoder cannot follow a FeatureUnion: put it inside")
    weights = union.transformer_weights or {}
    needs: list[Need | None] = [None] * union.n_features_in_
    branches = []
    for name, part in union.transformer_list:
        if isinstance(part, str) and part == "drop":
            continue
        inner = f"{where}, transformer {name!r}"
        if isinstance(part, str):
            translated = Translation(nn.Identity(), (Need(),) * len(needs))
        else:
            translated = translate(part, inner)
        needs = [
            _both(old, new, f"{inner}, column {place}")
            for place, (old, new) in enumerate(zip(needs, translated.needs, strict=True))
        ]
        branches.append((list(range(len(needs))), translated.layer, float(weights.get(name, 1))))
    return Translation(Branches(branches), tuple(needs))


def _places(chosen: Any, names: Sequence[str], columns: int) -> list[int]:
    """The places of the columns that a ColumnTransformer chooses."""
    if isinstance(chosen, slice):
        if isinstance(chosen.start, str) or isinstance(chosen.stop, str):
            first = 0 if chosen.start is None else names.index(chosen.start)
            last = columns if chosen.stop is None else names.index(chosen.stop) + 1
            return list(range(columns))[first:last]
        return list(range(columns))[chosen]
    ones = [chosen] if isinstance(chosen, str | int) else list(chosen)
    if ones and all(isinstance(one, bool | np.bool_) for one in ones):
        return [place for place, one in enumerate(ones) if one]
    return [names.index(one) if isinstance(one, str) else range(columns)[int(one)] for one in ones]


def _both(first: Need | None, second: Need | None, where: str) -> Need | None:
    """What two transformers need of the same column."""
    if first is None or second is None:
        return first or second
    if first.form != second.form:
        raise SourceError(f"{where}: two transformers read it as other values: {REMEDY}")
    return replace(first, blanks=first.blanks and second.blanks)


def _numbers_only(transformer: Any, where: str, after: Sequence[Need] | None) -> tuple[Need, ...]:
    """What the next step needs of each column, which has to be numbers."""
    count = transformer.n_features_in_
    needs = tuple(after) if after is not None else (Need(),) * count
    if any(need.form != NUMBER for need in needs):
        raise SourceError(f"{where}: expected numbers, and a later step needs words: {REMEDY}")
    return needs


def _typical(needs: Sequence[Need], centers: Any, spreads: Any) -> tuple[Need, ...]:
    columns = zip(
        needs, np.broadcast_to(centers, len(needs)), np.broadcast_to(spreads, len(needs)), strict=True
    )
    return tuple(replace(need, center=float(c), spread=abs(float(s)) or 1.0) for need, c, s in columns)


def _standard(transformer: Any, where: str, after: Sequence[Need] | None) -> Translation:
    needs = _numbers_only(transformer, where, after)
    zeros, ones = np.zeros(len(needs)), np.ones(len(needs))
    mean = zeros if transformer.mean_ is None or not transformer.with_mean else transformer.mean_
    scale = ones if transformer.scale_ is None else transformer.scale_
    typical = _typical(needs, zeros if transformer.mean_ is None else transformer.mean_, scale)
    return Translation(Scale(floats(mean), floats(scale)), typical)


def _min_max(transformer: Any, where: str, after: Sequence[Need] | None) -> Translation:
    needs = _numbers_only(transformer, where, after)
    low, high = transformer.feature_range
    layer = ScaleToRange(
        floats(transformer.scale_),
        floats(transformer.min_),
        (float(low), float(high)) if transformer.clip else None,
    )
    centers = (transformer.data_min_ + transformer.data_max_) / 2
    return Translation(layer, _typical(needs, centers, transformer.data_range_ / 4))


def _max_abs(transformer: Any, where: str, after: Sequence[Need] | None) -> Translation:
    needs = _numbers_only(transformer, where, after)
    scale = transformer.scale_
    return Translation(Scale(torch.zeros(len(needs)), floats(scale)), _typical(needs, 0.0, scale / 2))


def _robust(transformer: Any, where: str, after: Sequence[Need] | None) -> Translation:
    needs = _numbers_only(transformer, where, after)
    center = np.zeros(len(needs)) if transformer.center_ is None else transformer.center_
    scale = np.ones(len(needs)) if transformer.scale_ is None else transformer.scale_
    return Translation(Scale(floats(center), floats(scale)), _typical(needs, center, scale))


def _normalizer(transformer: Any, where: str, after: Sequence[Need] | None) -> Translation:
    needs = _numbers_only(transformer, where, after)
    return Translation(RowNorm(transformer.norm), tuple(replace(need, blanks=False) for need in needs))


def _binarizer(transformer: Any, where: str, after: Sequence[Need] | None) -> Translation:
    needs = _numbers_only(transformer, where, after)
    layer = Above(float(transformer.threshold))
    plain = tuple(replace(need, blanks=False) for need in needs)
    return Translation(layer, _typical(plain, transformer.threshold, 1.0))


def _function(transformer: Any, where: str, after: Sequence[Need] | None) -> Translation:
    if transformer.kw_args:
        raise _unknown(transformer, where, f" with kw_args {transformer.kw_args}")
    needs = _numbers_only(transformer, where, after)
    if transformer.func is None:
        return Translation(nn.Identity(), needs)
    try:
        function = FUNCTIONS[transformer.func]
    except (KeyError, TypeError):
        name = getattr(transformer.func, "__name__", transformer.func)
        raise _unknown(transformer, where, f" of {name}") from None
    return Translation(Each(function), _typical(needs, 1.0, 0.25))


def _imputer(transformer: Any, where: str, after: Sequence[Need] | None) -> Translation:
    missing = transformer.missing_values
    if not (
        missing is None or (isinstance(missing, Real) and math.isnan(missing)) or _is_pandas_blank(missing)
    ):
        raise _unknown(transformer, where, f" of {missing!r}, which is no blank,")
    statistics = np.array(transformer.statistics_, dtype=object)
    used = [n for n, value in enumerate(statistics) if not is_blank(value, "category")]
    marked = [] if transformer.indicator_ is None else [int(n) for n in transformer.indicator_.features_]
    count = len(used) + len(marked)
    needs = tuple(after) if after is not None else (Need(),) * count
    if len(needs) != count:
        raise SourceError(f"{where}: expected {count} values after it, got {len(needs)}")
    if any(need.form != NUMBER for need in needs[len(used) :]):
        raise SourceError(f"{where}: an encoder cannot follow the indicators of blanks: {REMEDY}")
    fills, before = [], [Need(blanks=True) for _ in statistics]
    for place, need in zip(used, needs, strict=False):
        fill = need.form.number_of(statistics[place]) if need.form.kind == "category" else statistics[place]
        fills.append(float(fill))
        center = need.center if need.form.kind == "category" else float(fill)
        before[place] = replace(need, blanks=True, center=center)
    return Translation(Fill(floats(fills), used, marked), tuple(before))


def _is_pandas_blank(value: Any) -> bool:
    return type(value).__name__ == "NAType"


def _one_hot(transformer: Any, where: str, after: Sequence[Need] | None) -> Translation:
    if after is not None and any(need.form != NUMBER for need in after):
        raise SourceError(f"{where}: expected numbers after it, and a later step needs words: {REMEDY}")
    if any(one is not None for one in getattr(transformer, "infrequent_categories_", ())):
        raise _unknown(transformer, where, " with infrequent categories")
    ignores = transformer.handle_unknown != "error"
    slots, needs = [], []
    dropped = (
        transformer.drop_idx_ if transformer.drop_idx_ is not None else [None] * len(transformer.categories_)
    )
    for column, categories in enumerate(transformer.categories_):
        form, values = _form_of(categories, f"{where}, column {column}")
        slots += [(column, value) for place, value in enumerate(values) if place != dropped[column]]
        needs.append(_encoded(categories, form, values, blanks=ignores or _has_nan(values), unseen=ignores))
    return Translation(OneHot(slots), tuple(needs))


def _ordinal(transformer: Any, where: str, after: Sequence[Need] | None) -> Translation:
    if after is not None and any(need.form != NUMBER for need in after):
        raise SourceError(f"{where}: expected numbers after it, and a later step needs words: {REMEDY}")
    if any(one is not None for one in getattr(transformer, "infrequent_categories_", ())):
        raise _unknown(transformer, where, " with infrequent categories")
    pairs, blanks, needs = [], [], []
    unknown = transformer.unknown_value if transformer.handle_unknown == "use_encoded_value" else math.nan
    for column, categories in enumerate(transformer.categories_):
        form, values = _form_of(categories, f"{where}, column {column}")
        pairs.append([(value, float(n)) for n, value in enumerate(values) if not math.isnan(value)])
        blank = unknown
        for place, category in enumerate(categories):
            if _is_nothing(category):
                # scikit-learn counts None as any other category
                blank = place if category is None else transformer.encoded_missing_value
        blanks.append(float(blank))
        unseen = not math.isnan(unknown)
        needs.append(_encoded(categories, form, values, blanks=not math.isnan(blank), unseen=unseen))
    return Translation(Ordinal(pairs, float(unknown), blanks), tuple(needs))


def _encoded(
    categories: Sequence[Any], form: ColumnForm, values: Sequence[float], *, blanks: bool, unseen: bool
) -> Need:
    """What an encoder needs of a column with these values."""
    choices = tuple(value for value in values if not math.isnan(value)) if form.kind == "number" else ()
    blank = next(filter(_is_nothing, categories), math.nan)
    return Need(form, blanks, unseen, blank, choices)


def _has_nan(values: Sequence[float]) -> bool:
    return any(map(math.isnan, values))


def _form_of(categories: Any, where: str) -> tuple[ColumnForm, list[float]]:
    """What a column of an encoder holds, and the number that the network gets for each category."""
    values = list(categories)
    present = [value for value in values if not _is_nothing(value)]
    if all(isinstance(value, bool | np.bool_) for value in present):
        return ColumnForm("boolean"), [math.nan if _is_nothing(v) else float(v) for v in values]
    if all(isinstance(value, Real) for value in present):
        return ColumnForm(), [math.nan if _is_nothing(v) else float(np.float32(v)) for v in values]
    words = [word_of(value) for value in present]
    for value, word in zip(present, words, strict=True):
        if is_blank(word, "category"):
            raise SourceError(f"{where}: the category {value!r} would be read as a blank: rename it")
        if words.count(word) > 1 or word != value:
            raise SourceError(f"{where}: the category {value!r} would be read as {word!r}: rename it")
    places = iter(range(len(present)))
    codes = [math.nan if _is_nothing(value) else float(next(places)) for value in values]
    return ColumnForm("category", categories=tuple(words)), codes


def _is_nothing(value: Any) -> bool:
    return value is None or _is_pandas_blank(value) or (isinstance(value, float) and math.isnan(value))


TRANSLATORS: Mapping[str, Callable[[Any, str, Sequence[Need] | None], Translation]] = {
    "StandardScaler": _standard,
    "MinMaxScaler": _min_max,
    "MaxAbsScaler": _max_abs,
    "RobustScaler": _robust,
    "Normalizer": _normalizer,
    "Binarizer": _binarizer,
    "FunctionTransformer": _function,
    "SimpleImputer": _imputer,
    "OneHotEncoder": _one_hot,
    "OrdinalEncoder": _ordinal,
}
