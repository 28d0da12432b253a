"""The types of the columns of a part, which its first rows do not decide."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow
import pytest
from pyarrow import parquet

from turnpike.score.errors import RowsError
from turnpike.score.job.part_writer import ROW_GROUP_ROWS, PartWriter

SCHEMA = pyarrow.schema([("label", pyarrow.dictionary(pyarrow.int32(), pyarrow.string()))])


def write(path: Path, *prices: Any) -> pyarrow.Table:
    """Write a row group for each of these prices, beside labels."""
    labels = pyarrow.array(["a", "b"] * (ROW_GROUP_ROWS // 2)).dictionary_encode()
    with PartWriter(path, SCHEMA, {"turnpike.model": "net/1"}, "rows.jsonl") as writer:
        for price in prices:
            writer.write(pyarrow.table({"price": [price] * ROW_GROUP_ROWS, "label": labels}))
    return parquet.read_table(path)


@pytest.mark.parametrize(
    ("prices", "kind"),
    [
        ((1, 2.5, 3), "double"),
        ((None, "x", None), "string"),
        ((None, 1, 1.5), "double"),
        ((1.5, 1), "double"),
    ],
)
def test_types_become_wider(tmp_path: Path, prices: tuple[Any, ...], kind: str) -> None:
    table = write(tmp_path / "part.parquet", *prices)
    assert str(table.schema.field("price").type) == kind
    assert table["price"].to_pylist()[::ROW_GROUP_ROWS] == list(prices)
    assert table["label"].to_pylist()[:2] == ["a", "b"]
    assert table.schema.metadata[b"turnpike.model"] == b"net/1"
    assert [path.name for path in tmp_path.iterdir()] == ["part.parquet"]


def test_numbers_and_texts_are_an_error(tmp_path: Path) -> None:
    with pytest.raises(RowsError, match="^rows.jsonl: expected the same columns in all rows"):
        write(tmp_path / "part.parquet", 1, "x")
