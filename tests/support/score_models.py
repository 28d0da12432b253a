"""Models to score rows with, rows for them, and the table that a job writes."""

from __future__ import annotations

from dataclasses import fields
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow
from pyarrow import parquet

from tests.support.tiny_highway import highway
from tests.support.tiny_repository import put_model, with_manifest
from turnpike.score.job.options import OutputOptions
from turnpike.score.run import JobOptions, JobResult, run_job
from turnpike.service.artifact.manifest import Feature
from turnpike.service.artifact.runtime import open_model
from turnpike.service.inference_types import Array

FEATURES = ("height [m]", "mass", "age", "width")


def table_model(root: Path, *, seed: int = 0) -> Path:
    """A model of a table with four columns and the classes a, b and c; returns its folder."""
    features = tuple(
        Feature.model_validate({"name": name, "unit": "", "low": -1, "high": 1, "mean": 0, "sd": 1})
        for name in FEATURES
    )
    put_model(root, "table", 1, with_manifest(highway(seed=seed), features=features))
    return root / "table"


def nameless_model(root: Path) -> Path:
    """The same network without names for its columns."""
    put_model(root, "net", 1, with_manifest(highway()))
    return root / "net"


def random_rows(count: int, seed: int = 0) -> Array:
    return np.random.default_rng(seed).normal(size=(count, len(FEATURES))).astype(np.float32)


def as_table(rows: Array, **others: Any) -> pyarrow.Table:
    """The rows under the names of the features, with other columns before them."""
    columns = {name: pyarrow.array(rows[:, index]) for index, name in enumerate(FEATURES)}
    return pyarrow.table({**others, **columns})


def score(model: Path, rows: str | Path, output: Path, **options: Any) -> JobResult:
    """Run a job; `options` are those of JobOptions and of OutputOptions."""
    names = {field.name for field in fields(OutputOptions)}
    written = OutputOptions(**{name: options.pop(name) for name in names & set(options)})
    return run_job(JobOptions(model, str(rows), output, written, workers=1, **options), lambda *_: None)


def scored(output: Path) -> pyarrow.Table:
    """All rows of a job, in order."""
    return parquet.read_table(output)


def expected_labels(model: Path, rows: Array) -> list[str]:
    """The labels that the graph itself gives to rows."""
    (logits,) = open_model(model / "1" / "model.onnx").run({"x": rows}, ["logits"])
    return ["abc"[best] for best in logits.argmax(1)]
