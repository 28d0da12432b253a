"""A model of a table with a number, words, dates and booleans, some of them blank, and rows for it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from tests.support.tiny_highway import highway
from tests.support.tiny_repository import put_model, with_manifest
from turnpike.service.artifact.manifest import Feature
from turnpike.service.artifact.runtime import open_model
from turnpike.service.inference_types import Array

FEATURES = (
    Feature(name="size", low=-3, high=3, mean=0, sd=1, blanks=True),
    Feature(name="color", low=0, high=1, mean=0, sd=1, kind="category", categories=("red", "3"), blanks=True),
    Feature(name="day", low=0, high=3, mean=0, sd=1, kind="date", date_format="%d.%m.%Y"),
    Feature(name="ripe", low=0, high=1, mean=0, sd=1, kind="boolean"),
)
# as a user has them, with a column that is not the model's
ROWS: list[dict[str, Any]] = [
    {"id": "a", "size": 1.5, "color": "3", "day": "03.01.1970", "ripe": True},
    {"id": "b", "size": None, "color": "red", "day": "01.01.1970", "ripe": False},
    {"id": "c", "size": -1.0, "color": None, "day": "02.01.1970", "ripe": True},
    {"id": "d", "size": 2.0, "color": "blue", "day": "04.01.1970", "ripe": False},
]
NAN = float("nan")
NUMBERS = np.array([[1.5, 1, 2, 1], [NAN, 0, 0, 0], [-1, NAN, 1, 1], [2, 2, 3, 0]], np.float32)
CSV = (
    "id,size,color,day,ripe\na,1.5,3,03.01.1970,true\nb,,red,01.01.1970,false\n"
    "c,-1,,02.01.1970,true\nd,2,blue,04.01.1970,false\n"
)


def put_cell_model(root: Path, **manifest: Any) -> Path:
    """Put the model into the repository as `cells`; returns its file."""
    data = with_manifest(highway(blanks=True), features=FEATURES, **manifest)
    return put_model(root, "cells", data=data).path


def expected_logits(numbers: Array = NUMBERS) -> Array:
    """The outputs of the graph itself for the numbers of rows."""
    return open_model(highway(blanks=True).model).run({"x": numbers}, ["logits"])[0]


def expected_labels(numbers: Array = NUMBERS) -> list[str]:
    return ["abc"[best] for best in expected_logits(numbers).argmax(1)]
