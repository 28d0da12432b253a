"""Proof batches: reproducible, and of every size, kind of value and memory layout that a service may meet."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from turnpike.export.input_spec import parse_inputs
from turnpike.export.network import Network, Rows
from turnpike.export.parity.batches import (
    LARGE_FACTORS,
    LARGE_VALUES,
    ONE_NAN,
    BatchGenerator,
    ProofBatch,
    choose_sizes,
)
from turnpike.export.parity.input_domains import InputDomain
from turnpike.service.artifact.manifest import Feature

FLOAT = "x:float32[batch,4]"
IDS = "ids:int64[batch,tokens]"


def generator(
    *inputs: str, seed: int = 0, max_rows: int = 100, rows: Rows | None = None, low: int = 0
) -> BatchGenerator:
    network = Network("s", "module", parse_inputs(inputs), rows=rows)
    domains = {spec.name: InputDomain(low, 9, mean=5.0, sd=2.0) for spec in network.inputs}
    return BatchGenerator(choose_sizes(network), domains, seed, max_rows)


def by_name(batch_generator: BatchGenerator, rows: Rows | None = None) -> dict[str, ProofBatch]:
    batches = batch_generator.all(rows)
    assert len({batch.name for batch in batches}) == len(batches)
    return {batch.name: batch for batch in batches}


def test_a_seed_determines_the_batches() -> None:
    """The manifest records the digests, so that a later verification uses the same rows."""
    first, repeated, other = (
        [batch.record() for batch in generator(FLOAT, seed=seed).all(None)] for seed in (3, 3, 4)
    )
    assert first == repeated
    assert all(a.digest != b.digest for a, b in zip(first, other, strict=True) if a.name != "zeros")


def test_batches_have_every_size_of_a_service() -> None:
    """1, 2, 7, 64 and the maximum. All begin with the same rows, and only small ones compare layers."""
    nested = [batch for batch in generator(FLOAT).all(None) if batch.name.endswith(("row", "rows"))]
    assert sorted(batch.rows for batch in nested) == [1, 2, 7, 64, 100]
    assert [batch.rows for batch in nested if batch.compare_layers] == [1, 2, 7]
    largest = max(nested, key=lambda batch: batch.rows).arrays["x"]
    for batch in nested:
        assert batch.shared
        assert np.array_equal(batch.arrays["x"], largest[: batch.rows])
    assert [b.rows for b in generator(FLOAT, max_rows=2).nested()] == [1, 2]


def test_numbers_are_values_from_the_domain() -> None:
    values = generator(FLOAT, max_rows=1000).random_rows().inputs["x"]
    assert values.dtype == np.float32
    assert values.mean() == pytest.approx(5, abs=0.2)
    assert values.std() == pytest.approx(2, abs=0.2)


def test_the_neighbours_batch_repeats_a_row_beside_others() -> None:
    batches = by_name(generator(FLOAT))
    row, neighbours = batches["1 row"].arrays["x"], batches["neighbours"].arrays["x"]
    assert batches["neighbours"].shared
    assert np.array_equal(neighbours[0], row[0])
    assert not np.isin(neighbours[1:], batches["100 rows"].arrays["x"]).any()


def test_stress_batches_have_extreme_values() -> None:
    """Zeros, rows times 3 to 10,000, denormals, and one NaN or Inf in the second row."""
    batches = by_name(generator(FLOAT))
    stress = {name: batch.arrays["x"] for name, batch in batches.items() if not batch.ordinary}
    assert list(stress) == ["zeros", LARGE_VALUES, "denormal", ONE_NAN, "one Inf"]
    assert not stress["zeros"].any()
    assert batches[LARGE_VALUES].row_names[:3] == ("large x3", "large x10", "large x30")
    for row, factor in zip(stress[LARGE_VALUES], LARGE_FACTORS, strict=True):
        assert 0.1 * factor < np.abs(row).mean() < 10 * factor
    tiny = np.abs(stress["denormal"])
    assert tiny.dtype == np.float32
    assert (tiny > 0).all()
    assert (tiny < np.finfo(np.float32).tiny).all()
    for name, mask in ((ONE_NAN, np.isnan), ("one Inf", np.isinf)):
        assert mask(stress[name]).sum() == 1
        assert mask(stress[name][1]).any()


@pytest.mark.parametrize(
    ("spec", "max_rows", "names"),
    [
        ("x:float32[1,3]", 100, [(f"large x{factor:g}",) for factor in LARGE_FACTORS]),
        (
            "x:float32[3,3]",
            100,
            [
                ("large x3", "large x10", "large x30"),
                ("large x100", "large x300", "large x1000"),
                ("large x3000", "large x10000", "large x10000"),
            ],
        ),
        (
            FLOAT,
            4,
            [
                ("large x3", "large x10", "large x30", "large x100"),
                ("large x300", "large x1000", "large x3000", "large x10000"),
            ],
        ),
    ],
)
def test_large_rows_fit_into_the_batches_that_a_network_takes(
    spec: str, max_rows: int, names: list[tuple[str, ...]]
) -> None:
    batches = [batch for batch in generator(spec, max_rows=max_rows).stress() if batch.row_names]
    assert [batch.row_names for batch in batches] == names
    assert [batch.rows for batch in batches] == [len(rows) for rows in names]
    assert len({batch.name for batch in batches}) == len(batches)


def test_ids_cover_exactly_their_range() -> None:
    """Ids are neither scaled nor made NaN."""
    batches = by_name(generator(IDS, low=-2))
    assert all(batch.arrays["ids"].dtype == np.int64 for batch in batches.values())
    assert {name for name, batch in batches.items() if not batch.ordinary} == {"zeros"}
    all_ids = np.concatenate([b.arrays["ids"].ravel() for n, b in batches.items() if n != "zeros"])
    assert (all_ids.min(), all_ids.max()) == (-2, 9)
    assert set(batches["ends of the range"].arrays["ids"].ravel()) == {-2, 9}
    assert set(generator(IDS, low=-2).probe().arrays["ids"].ravel()) == {-2, 9}


def test_dynamic_dimensions_get_several_sizes() -> None:
    """A dynamic dimension gets sizes 1, 2, those beside the traced one, and longer ones."""
    lengths = {b.arrays["ids"].shape[1] for b in generator(IDS).all(None) if b.name.startswith("tokens=")}
    assert {1, 2, 5, 16, 18, 33} <= lengths


@pytest.mark.parametrize("halvings", range(3, 9))
def test_other_lengths_fit_networks_that_halve_them(halvings: int) -> None:
    """Each is tried for a network that pools as often: it accepts multiples of a power of two."""
    network = Network("s", "m", parse_inputs([IDS]))
    lengths = [sizes.sizes["tokens"] for sizes in choose_sizes(network).alternatives()]
    assert next(length for length in lengths if length % 2**halvings == 0) == 2**halvings


def test_a_fixed_batch_size_is_kept() -> None:
    """All batches have the fixed number of rows, and row 0 still gets other neighbors."""
    batches = by_name(generator("x:float32[4,3]"))
    assert {batch.rows for batch in batches.values()} == {4}
    assert np.array_equal(batches["neighbours"].arrays["x"][0], batches["4 rows"].arrays["x"][0])


def test_a_fixed_batch_is_cut_from_the_rows_of_the_data() -> None:
    """Fewer rows than the batch needs are not tried. An input with another first size has no rows."""
    spec = "x:float32[4,3]"
    many, few = (Rows({"x": np.arange(count * 3, dtype=np.float32).reshape(-1, 3)}) for count in (9, 3))
    real = by_name(generator(spec), many)["first real rows"]
    assert np.array_equal(real.arrays["x"], many.inputs["x"][:4])
    assert "first real rows" not in by_name(generator(spec), few)
    assert by_name(generator(spec, "w:float32[6]"))["4 rows"].axes == {"x": 0, "w": None}


def test_the_batch_may_be_any_axis() -> None:
    """A state of [layers, batch, units] is cut along its rows; an input without rows is left whole."""
    batches = by_name(generator("x:float32[batch,3]", "h:float32[2,batch,5]", "w:float32[6]"))
    assert batches["2 rows"].arrays["h"].shape == (2, 2, 5)
    assert np.array_equal(batches["2 rows"].arrays["h"], batches["7 rows"].arrays["h"][:, :2])
    assert np.array_equal(batches["2 rows"].arrays["w"], batches["7 rows"].arrays["w"])
    assert np.array_equal(batches["neighbours"].arrays["h"][:, 0], batches["1 row"].arrays["h"][:, 0])


def test_real_rows_are_tried_if_there_are_any() -> None:
    """A few rows with all layers, and as many as one batch may have."""
    x = np.random.default_rng(0).random((300, 4), np.float32)
    rows = Rows({"x": x})
    batches = by_name(generator(FLOAT, rows=rows), rows)
    assert np.array_equal(batches["real rows"].arrays["x"], x[:100])
    assert not batches["real rows"].compare_layers
    assert np.array_equal(batches["first real rows"].arrays["x"], x[:3])
    few = Rows({"x": x[:2]})
    assert "real rows" not in by_name(generator(FLOAT, rows=few), few)


def test_a_dynamic_length_is_taken_from_the_rows() -> None:
    rows = Rows({"ids": np.zeros((5, 12), np.int64)})
    assert choose_sizes(Network("s", "m", parse_inputs([IDS]), rows=rows)).sizes["tokens"] == 12


def test_a_digest_covers_names_types_shapes_and_bytes() -> None:
    x = np.arange(4, dtype=np.float32)
    batches = [
        ProofBatch("b", 1, arrays, {})
        for arrays in ({"x": x}, {"y": x}, {"x": x.view(np.int32)}, {"x": x.reshape(2, 2)}, {"x": x + 1})
    ]
    assert len({batch.record().digest for batch in batches}) == 5
    assert batches[0].record() == ProofBatch("b", 1, {"x": x.copy()}, {}).record()


def test_a_perturbation_is_relative_to_each_value() -> None:
    """Another seed moves it elsewhere. Zeros move by a share of the usual value, and ids not at all."""
    batch = ProofBatch(
        "b", 2, {"x": np.float32([[1e4], [0]]), "ids": np.array([[3], [4]])}, {"x": 0, "ids": 0}
    )
    perturbed = batch.perturbed(1e-6, 0).arrays
    assert 0 < abs(perturbed["x"][0, 0] - 1e4) <= 1e-2
    assert perturbed["x"][0, 0] != batch.perturbed(1e-6, 1).arrays["x"][0, 0]
    assert perturbed["x"].dtype == np.float32
    assert perturbed["x"][1, 0] == 0
    usual = replace(batch, usual={"x": 10.0}).perturbed(1e-6, 0).arrays["x"]
    assert 0 < abs(usual[1, 0]) <= 1e-5
    assert usual[0, 0] == perturbed["x"][0, 0]
    infinite = replace(batch, arrays={"x": np.float32([[np.inf], [np.nan]])}, axes={"x": 0})
    assert np.array_equal(infinite.perturbed(1e-6, 0).arrays["x"], infinite.arrays["x"], equal_nan=True)
    assert np.array_equal(perturbed["ids"], batch.arrays["ids"])


def test_a_range_limits_the_values_of_every_batch() -> None:
    """Extreme values are moved to its ends. A NaN only shows whether rows are mixed."""
    sizes = choose_sizes(Network("s", "module", parse_inputs([FLOAT])))
    domain = InputDomain(mean=5.0, sd=2.0).within(1.0, 7.5)
    batches = by_name(BatchGenerator(sizes, {"x": domain}, 0, 100))
    assert "one Inf" not in batches
    assert [batch.name for batch in batches.values() if not batch.compared] == [ONE_NAN]
    values = np.concatenate([batch.arrays["x"].ravel() for batch in batches.values()])
    assert (np.nanmin(values), np.nanmax(values)) == (1, 7.5)
    assert np.isnan(values).sum() == 1
    assert set(batches[LARGE_VALUES].arrays["x"][-1]) == {7.5}
    assert set(batches["zeros"].arrays["x"].ravel()) == {1}


def test_rows_of_a_table_have_blanks_and_words_that_were_never_seen() -> None:
    """Each word is drawn, and the one after the last. Its number is never moved, or it were another word."""
    columns = tuple(
        Feature(name=kind, low=0, high=high, mean=0, sd=1, kind=kind, blanks=blanks)
        for kind, high, blanks in (("number", 1, True), ("category", 2, True), ("boolean", 1, False))
    )
    spec = "x:float32[batch,3]"
    domains = {"x": InputDomain(mean=np.zeros(3), sd=np.ones(3), columns=columns)}
    network = Network("s", "module", parse_inputs([spec]))
    batches = by_name(BatchGenerator(choose_sizes(network), domains, 0, 100))
    number, word, flag = batches["64 rows"].arrays["x"].T
    assert set(word) == {0, 1, 2, 3}
    assert set(flag) == {0, 1}
    assert len(set(number)) == 64
    blank = np.isnan(batches["blanks"].arrays["x"])
    assert blank[0].tolist() == [True, True, False]
    assert blank[1:].any(0).tolist() == [True, True, False]
    assert not blank[1:].all(1).any()
    assert batches["blanks"].ordinary
    assert batches["unseen words"].ordinary
    assert (batches["unseen words"].arrays["x"][:, 1] == 3).all()
    moved = batches["64 rows"].perturbed(1e-3, 0).arrays["x"]
    assert (moved[:, 1] == word).all()
    assert (moved[:, 0] != number).any()
