"""The columns of a table: their names and ranges from a training run, or from the user and the rows."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from pydantic import ValidationError

from turnpike.export.errors import SourceError, UsageError
from turnpike.export.network import Network
from turnpike.export.sources.data.labels import read_distinct_names
from turnpike.models.data.features import describe_features
from turnpike.models.training.checkpoint import TrainingRecord
from turnpike.service.artifact.manifest import Feature


def recorded_features(record: TrainingRecord, where: str) -> tuple[Feature, ...]:
    """What a training run recorded about the columns of its table; empty for other data."""
    entries: Any = record.data.get("features", [])
    try:
        return tuple(Feature.model_validate(entry) for entry in entries)
    except (TypeError, ValidationError) as error:
        raise SourceError(f"{where}: the record's data.features is of an unexpected type") from error


def named_features(names: Path | Sequence[str], network: Network) -> tuple[Feature, ...]:
    """The features that a user names; their ranges are those of the rows."""
    if network.features:
        raise UsageError("--features: the training run has recorded the names of its columns")
    columns = column_count(network)
    given = read_distinct_names(names)
    if columns is None:
        shapes = ", ".join(map(str, network.inputs))
        raise UsageError(f"--features: expected a network with one input of rows and columns, got {shapes}")
    if len(given) != columns:
        raise SourceError(f"expected {columns} names, one per column of the input, got {len(given)}")
    if network.rows is None:
        raise UsageError("--features: the ranges of the columns come from rows: give --data")
    rows = torch.from_numpy(network.rows.all_known(network.inputs[0].name))
    return tuple(Feature.model_validate(entry) for entry in describe_features(given, rows))


def without_words(features: Sequence[Feature]) -> tuple[Feature, ...]:
    """The features without the words of their categories, which may say something about people."""
    return tuple(feature.model_copy(update={"categories": ()}) for feature in features)


def column_count(network: Network) -> int | None:
    """The number of columns if the network reads the rows of one table."""
    if len(network.inputs) != 1:
        return None
    _, *row = network.inputs[0].dims or (None,)
    return row[0] if len(row) == 1 and isinstance(row[0], int) else None
