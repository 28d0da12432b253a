"""Batches: drawn the same each time, of every size, kind and memory that a service may meet."""

from __future__ import annotations

import numpy as np
import pytest

from export.input_spec import parse_inputs
from export.parity.batches import (
    LARGE_FACTOR,
    LARGE_VALUES,
    ONE_NAN,
    BatchGenerator,
    ProofBatch,
    choose_sizes,
)
from export.parity.input_domains import InputDomain
from export.source import Rows, Source

FLOAT = "x:float32[batch,4]"
IDS = "ids:int64[batch,tokens]"


def maker(
    *inputs: str, seed: int = 0, max_rows: int = 100, rows: Rows | None = None, low: int = 0
) -> BatchGenerator:
    source = Source("s", "module", parse_inputs(inputs), rows=rows)
    domains = {one.name: InputDomain(low, 9, mean=5.0, sd=2.0) for one in source.inputs}
    return BatchGenerator(choose_sizes(source), domains, seed, max_rows)


def by_name(made: BatchGenerator, rows: Rows | None = None) -> dict[str, ProofBatch]:
    batches = made.all(rows)
    assert len({batch.name for batch in batches}) == len(batches)
    return {batch.name: batch for batch in batches}


def test_a_seed_draws_the_same_each_time_and_another_seed_other_numbers() -> None:
    """Digests are recorded, so that a verification later is of the same rows."""
    first, again, other = (
        [batch.record() for batch in maker(FLOAT, seed=seed).all(None)] for seed in (3, 3, 4)
    )
    assert first == again
    assert all(a.digest != b.digest for a, b in zip(first, other, strict=True) if a.name != "zeros")


def test_every_size_of_a_service_is_tried() -> None:
    """1, 2, 7, 64 and the most; each begins with the same rows, and only small ones show their layers."""
    nested = [batch for batch in maker(FLOAT).all(None) if batch.name.endswith(("row", "rows"))]
    assert sorted(batch.rows for batch in nested) == [1, 2, 7, 64, 100]
    assert [batch.rows for batch in nested if batch.small] == [1, 2, 7]
    most = max(nested, key=lambda batch: batch.rows).arrays["x"]
    for batch in nested:
        assert batch.shared
        assert np.array_equal(batch.arrays["x"], most[: batch.rows])
    assert [b.rows for b in maker(FLOAT, max_rows=2).nested()] == [1, 2]


def test_numbers_are_drawn_from_the_domain() -> None:
    """Floats around its mean, in the input's own type."""
    drawn = maker(FLOAT, max_rows=1000).drawn().inputs["x"]
    assert drawn.dtype == np.float32
    assert drawn.mean() == pytest.approx(5, abs=0.2)
    assert drawn.std() == pytest.approx(2, abs=0.2)


def test_neighbours_are_others_beside_the_same_row() -> None:
    """Row 0 is that of the other batches; the rest is not."""
    found = by_name(maker(FLOAT))
    row, neighbours = found["1 row"].arrays["x"], found["neighbours"].arrays["x"]
    assert found["neighbours"].shared
    assert np.array_equal(neighbours[0], row[0])
    assert not np.isin(neighbours[1:], found["100 rows"].arrays["x"]).any()


def test_strained_batches_strain() -> None:
    """Zeros, numbers 10,000 times as large, denormal ones, and one cell, in the second row, that is none."""
    found = by_name(maker(FLOAT))
    strained = {name: batch.arrays["x"] for name, batch in found.items() if not batch.ordinary}
    assert list(strained) == ["zeros", LARGE_VALUES, "denormal", ONE_NAN, "one Inf"]
    assert not strained["zeros"].any()
    assert np.abs(strained[LARGE_VALUES]).mean() > 0.5 * LARGE_FACTOR
    tiny = np.abs(strained["denormal"])
    assert tiny.dtype == np.float32
    assert (tiny > 0).all()
    assert (tiny < np.finfo(np.float32).tiny).all()
    for name, mask in ((ONE_NAN, np.isnan), ("one Inf", np.isinf)):
        assert mask(strained[name]).sum() == 1
        assert mask(strained[name][1]).any()


def test_ids_stay_in_their_range_and_reach_both_ends() -> None:
    """No id is scaled or made NaN; the least and the greatest are both tried."""
    found = by_name(maker(IDS, low=-2))
    assert all(batch.arrays["ids"].dtype == np.int64 for batch in found.values())
    assert {name for name, batch in found.items() if not batch.ordinary} == {"zeros"}
    everything = np.concatenate([b.arrays["ids"].ravel() for n, b in found.items() if n != "zeros"])
    assert (everything.min(), everything.max()) == (-2, 9)
    assert set(found["ends of the range"].arrays["ids"].ravel()) == {-2, 9}
    assert set(maker(IDS, low=-2).probe().arrays["ids"].ravel()) == {-2, 9}


def test_other_lengths_are_tried() -> None:
    """A dimension that is free is given 1, 2, sizes beside the traced one, and longer ones."""
    lengths = {b.arrays["ids"].shape[1] for b in maker(IDS).all(None) if b.name.startswith("tokens=")}
    assert {1, 2, 5, 16, 18, 33} <= lengths


def test_a_fixed_batch_is_the_only_size() -> None:
    """Where no dimension is free all batches have its rows, and still row 0 gets other neighbours."""
    found = by_name(maker("x:float32[4,3]"))
    assert {batch.rows for batch in found.values()} == {4}
    assert np.array_equal(found["neighbours"].arrays["x"][0], found["4 rows"].arrays["x"][0])


def test_the_batch_may_lie_along_any_axis() -> None:
    """A state of [layers, batch, units] is cut where its rows are, and what has no rows is left whole."""
    found = by_name(maker("x:float32[batch,3]", "h:float32[2,batch,5]", "w:float32[6]"))
    assert found["2 rows"].arrays["h"].shape == (2, 2, 5)
    assert np.array_equal(found["2 rows"].arrays["h"], found["7 rows"].arrays["h"][:, :2])
    assert np.array_equal(found["2 rows"].arrays["w"], found["7 rows"].arrays["w"])
    assert np.array_equal(found["neighbours"].arrays["h"][:, 0], found["1 row"].arrays["h"][:, 0])


def test_real_rows_are_tried_where_there_are_any() -> None:
    """A few with all their layers, and as many as one batch may have."""
    x = np.random.default_rng(0).random((300, 4), np.float32)
    rows = Rows({"x": x})
    found = by_name(maker(FLOAT, rows=rows), rows)
    assert np.array_equal(found["real rows"].arrays["x"], x[:100])
    assert not found["real rows"].small
    assert np.array_equal(found["first real rows"].arrays["x"], x[:3])
    few = Rows({"x": x[:2]})
    assert "real rows" not in by_name(maker(FLOAT, rows=few), few)


def test_a_free_length_is_that_of_the_rows() -> None:
    """Rows of 12 tokens say what is ordinary."""
    rows = Rows({"ids": np.zeros((5, 12), np.int64)})
    assert choose_sizes(Source("s", "m", parse_inputs([IDS]), rows=rows)).sizes["tokens"] == 12


def test_a_digest_is_of_names_types_shapes_and_bytes() -> None:
    """Any of them makes another digest."""
    x = np.arange(4, dtype=np.float32)
    made = [
        ProofBatch("b", 1, arrays, {})
        for arrays in ({"x": x}, {"y": x}, {"x": x.view(np.int32)}, {"x": x.reshape(2, 2)}, {"x": x + 1})
    ]
    assert len({batch.record().digest for batch in made}) == 5
    assert made[0].record() == ProofBatch("b", 1, {"x": x.copy()}, {}).record()


def test_shaking_moves_numbers_by_a_share_of_themselves() -> None:
    """In float64, ids not at all."""
    batch = ProofBatch(
        "b", 2, {"x": np.float32([[1e4], [0]]), "ids": np.array([[3], [4]])}, {"x": 0, "ids": 0}
    )
    shaken = batch.shaken(1e-6).arrays
    assert 0 < abs(shaken["x"][0, 0] - 1e4) <= 1e-2
    assert shaken["x"].dtype == np.float64
    assert shaken["x"][1, 0] == 0
    assert np.array_equal(shaken["ids"], batch.arrays["ids"])
