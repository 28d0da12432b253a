"""Intervals of a predicted number: over HTTP, in tables, by the commands, and in the certificate."""

from __future__ import annotations

import asyncio
import csv
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from pydantic import ValidationError

from tests.support.asgi import Reply
from tests.support.in_process_worker import InProcessWorker, request, run_scene
from tests.support.manifests import MANIFEST
from tests.support.run_cli import run_in_process
from tests.support.tiny_highway import highway
from tests.support.tiny_repository import put_model, with_manifest
from turnpike.score.job.options import OutputOptions
from turnpike.score.job.scoring_model import ScoringModel
from turnpike.score.readers.parts import RowBatch
from turnpike.service.artifact.manifest import Feature, Interval, Manifest
from turnpike.service.config.settings import Settings
from turnpike.service.repository.deployment import Deployment
from turnpike.service.repository.scan import ModelFile

FEATURES = tuple(Feature(name=name, low=-1, high=1, mean=0, sd=1) for name in ("ash", "fir", "oak", "elm"))
INTERVAL = Interval(level=0.9, half_width=0.75, rows=40)
ROWS = np.random.default_rng(0).normal(size=(6, 4)).round(3).astype(np.float32)
TABLE = "\n".join(["id,ash,fir,oak,elm", *(f"r{n}," + ",".join(map(str, row)) for n, row in enumerate(ROWS))])
PRICE = highway(classes=1, seed=3)
NUMBER = {"labels": (), "features": FEATURES, "task": "number", "target": "price"}


def expected() -> np.ndarray[Any, np.dtype[np.float32]]:
    """The predicted numbers, and the lowest and the highest of their intervals."""
    values = PRICE.open().run({"x": ROWS}, ["logits"])[0].ravel()
    return np.stack([values, values - np.float32(0.75), values + np.float32(0.75)], 1)


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> ModelFile:
    return put_model(
        tmp_path_factory.mktemp("models"), data=with_manifest(PRICE, **NUMBER, interval=INTERVAL)
    )


@pytest.fixture(scope="module")
def worker(model: ModelFile) -> InProcessWorker:
    worker = InProcessWorker(Settings(threads=1))
    committed = asyncio.run(worker.app.registry.commit(Deployment(1, {"net": (model,)}).to_json()))
    assert not committed["failed"]
    return worker


def ask(worker: InProcessWorker, body: str, headers: Mapping[str, object] | None = None) -> Reply:
    replies: list[Reply] = []

    async def scene(worker: InProcessWorker) -> None:
        path = "/v1/models/net:predict" if body else "/v2/models/net/certificate"
        method = "POST" if body else "GET"
        replies.append(await worker.connect().ask(request(path, body.encode(), headers, method=method)))

    run_scene(worker, scene)
    assert replies[0].status == 200, replies[0].body
    return replies[0]


def test_predictions_have_bounds(worker: InProcessWorker) -> None:
    answer = json.loads(ask(worker, json.dumps({"instances": ROWS.tolist()})).body)
    rows = [[row["value"], row["low"], row["high"]] for row in answer["predictions"]]
    np.testing.assert_allclose(rows, expected(), rtol=1e-6)


def test_a_table_of_predictions_has_bounds(worker: InProcessWorker) -> None:
    reply = ask(worker, TABLE, {"Content-Type": "text/csv", "Accept": "text/csv"})
    rows = list(csv.DictReader(reply.body.decode().splitlines()))
    assert [row["id"] for row in rows] == [f"r{n}" for n in range(6)]
    found = [[float(row[name]) for name in ("value", "low", "high")] for row in rows]
    np.testing.assert_allclose(found, expected(), atol=1e-5)


def test_commands_show_bounds(model: ModelFile, tmp_path: Path) -> None:
    """`turnpike predict` and `turnpike inspect` of a file."""
    (tmp_path / "rows.csv").write_text(TABLE)
    output = run_in_process("predict", model.path, tmp_path / "rows.csv").stdout
    rows = list(csv.DictReader(output.splitlines()))
    np.testing.assert_allclose(
        [[float(row[name]) for name in ("low", "high")] for row in rows], expected()[:, 1:], atol=1e-5
    )
    shown = " ".join(run_in_process("inspect", model.path).stdout.split())
    assert "predicts price ± 0.75, which holds 0.9 of the true numbers, by 40 rows" in shown


def test_scored_rows_have_bounds(model: ModelFile) -> None:
    columns = ScoringModel(model.path, OutputOptions()).score(RowBatch({"x": ROWS}, {}, len(ROWS)))
    assert list(columns) == ["value", "low", "high"]
    found = np.stack([column.to_numpy() for column in columns.values()], 1)
    np.testing.assert_allclose(found, expected(), rtol=1e-6)


def test_the_certificate_has_the_interval(worker: InProcessWorker) -> None:
    assert json.loads(ask(worker, "").body)["interval"] == INTERVAL.model_dump()


def test_bounds_stay_finite(tmp_path: Path) -> None:
    """A half-width near the largest number of float32 does not make an answer infinite."""
    huge = Interval(level=0.9, half_width=3.5e38, rows=40)
    model = put_model(tmp_path, data=with_manifest(PRICE, **NUMBER, interval=huge))
    columns = ScoringModel(model.path, OutputOptions()).score(RowBatch({"x": ROWS}, {}, len(ROWS)))
    limit = float(np.finfo(np.float32).max)
    assert set(columns["low"].to_pylist()) == {-limit}
    assert set(columns["high"].to_pylist()) == {limit}


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        ({"level": 1}, "less than 1"),
        ({"half_width": -1}, "greater than or equal to 0"),
        ({"rows": 0}, "than"),
    ],
)
def test_impossible_intervals_are_refused(changes: dict[str, Any], problem: str) -> None:
    with pytest.raises(ValidationError, match=problem):
        Interval.model_validate(INTERVAL.model_dump() | changes)


def test_classes_have_no_interval() -> None:
    manifest = MANIFEST.model_dump() | {"interval": INTERVAL.model_dump()}
    with pytest.raises(ValidationError, match="expected no interval, since no number is predicted"):
        Manifest.model_validate(manifest)
