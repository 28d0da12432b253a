"""Checks the batches that a manifest names: makes those of its seed again, and compares their digests."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np

from turnpike.export.claims.checklist import NO_ROWS, OTHER_ROWS, Checklist
from turnpike.export.claims.verified_file import VerifiedFile
from turnpike.export.network import Network, Rows
from turnpike.export.parity.batches import REAL_ROWS, BatchGenerator
from turnpike.export.parity.input_domains import recorded_columns
from turnpike.export.parity.onnx_reference import OnnxReference
from turnpike.export.parity.reference import Reference, RejectedError
from turnpike.export.parity.rounding import choose_batch_generator
from turnpike.export.parity.torch_reference import TorchReference
from turnpike.service.artifact.limits import MAX_ROWS
from turnpike.service.artifact.proof_records import ParityBatch

FIRST_REAL_ROWS = f"first {REAL_ROWS}"
SIZE_BATCH = re.compile(r"(?P<dim>.+)=[1-9][0-9]*")


@dataclass(frozen=True)
class _Expected:
    """The batches that an export makes with some rows, or without, as far as the network accepts them."""

    generator: BatchGenerator
    records: tuple[ParityBatch, ...]


def check_batches(claims: Checklist, file: VerifiedFile) -> bool:
    """Check seed and batches; returns whether the rows of the source are those that the file was made with.

    The random rows are like the real ones, so without these no batch can be made again.
    """
    recorded, seed = file.manifest.parity.batches, file.manifest.parity.seed
    if seed < 0:
        raise claims.error("parity: seed", f"expected 0 or more, got {seed}")
    rows = file.network.rows
    real = [batch for batch in recorded if REAL_ROWS in batch.name]
    with_rows = None if rows is None else _expected(file, rows)
    if with_rows is not None and _share_rows(with_rows.records, recorded, real, file.network):
        _expect_batches(claims, with_rows.records, recorded)
        return True
    without = _expected(file, None)
    fixed = without.generator.sizes.fixed_rows()
    if not real and not (fixed not in (None, 1) and file.manifest.ranges):
        _expect_batches(claims, without.records, recorded)
        return False
    if real and _depends_on_rows(file.network) and recorded[:1] == without.records[:1]:
        raise claims.error(
            f"parity: batches: {real[0].name!r}",
            f"expected none, because the batch {recorded[0].name!r} is that of an export without rows",
        )
    _expect_known_batches(claims, without, recorded)
    claims.check("parity.batches.name", "parity.batches.rows")
    claims.claim(NO_ROWS if rows is None else OTHER_ROWS, "parity.batches.digest", "parity.seed")
    return False


def _expected(file: VerifiedFile, rows: Rows | None) -> _Expected:
    """The batches of the file's seed."""
    network, model = replace(file.network, rows=rows), file.proved_model
    origins, traced = file.graph.gates.origins, file.graph.traced
    reference: Reference = (
        OnnxReference(network, model, origins)
        if traced is None
        else TorchReference(network, traced, model, origins)
    )
    generator = choose_batch_generator(
        network, reference, file.graph.model, file.manifest.parity.seed, MAX_ROWS
    )
    proved = {batch.name for batch in file.proof.parity.batches}

    def is_accepted(name: str) -> bool:
        if name in proved:
            return True
        try:
            reference.native(batches[name])
        except RejectedError:
            return False
        return True

    batches = {batch.name: batch for batch in generator.all(rows) if batch.compared}
    return _Expected(generator, tuple(batch.record() for name, batch in batches.items() if is_accepted(name)))


def _share_rows(
    expected: Sequence[ParityBatch],
    recorded: Sequence[ParityBatch],
    real: Sequence[ParityBatch],
    net: Network,
) -> bool:
    """Whether a file was made with rows: a batch of them is the same, or the first random one is alike."""
    digests = {batch.digest for batch in expected if REAL_ROWS in batch.name}
    if any(batch.digest in digests for batch in real):
        return True
    return _depends_on_rows(net) and bool(recorded) and recorded[0] == expected[0]


def _depends_on_rows(network: Network) -> bool:
    """Whether random rows of a network surely depend on the real ones: floats have their distribution.

    The columns of a table with words or blanks are drawn as its training recorded them.
    """
    return not recorded_columns(network) and all(np.dtype(spec.dtype).kind == "f" for spec in network.inputs)


def _expect_batches(
    claims: Checklist, expected: Sequence[ParityBatch], recorded: Sequence[ParityBatch]
) -> None:
    """Check that these are the batches, in this order."""
    names = [batch.name for batch in expected]
    if unknown := [batch for batch in recorded if batch.name not in names]:
        raise claims.error(
            f"parity: batches: {unknown[0].name!r}",
            f"expected the batches that turnpike makes for this network, got one of {unknown[0].rows} rows",
        )
    if names != (got := [batch.name for batch in recorded]):
        missing = next((name for name in names if name not in got), "another order")
        raise claims.error("parity: batches", f"expected {len(names)} batches, got {len(got)}: {missing!r}")
    for ours, theirs in zip(expected, recorded, strict=True):
        if ours.rows != theirs.rows:
            raise claims.error(
                f"parity: batches: {theirs.name!r}: rows", f"expected {ours.rows}, got {theirs.rows}"
            )
        if ours.digest != theirs.digest:
            raise claims.error(
                f"parity: batches: {theirs.name!r}: digest",
                f"expected {ours.digest[:12]}..., of the rows of the seed, got {theirs.digest[:12]}...",
            )
    claims.check("parity.seed", "parity.batches")


def _expect_known_batches(claims: Checklist, without: _Expected, recorded: Sequence[ParityBatch]) -> None:
    """Check names and sizes of batches that cannot be made again."""
    counts = {batch.name: batch.rows for batch in without.records}
    largest = without.generator.row_counts[-1]
    names = [batch.name for batch in recorded]
    if repeated := [name for name in names if names.count(name) > 1]:
        raise claims.error("parity: batches", f"expected distinct names, got {repeated[0]!r} more than once")
    if missing := list(_missing(counts, names, without.generator)):
        raise claims.error("parity: batches", f"expected the batch {missing[0]!r}, got none")
    dims = {dim for dim in without.generator.sizes.sizes if dim != without.generator.sizes.batch}
    for batch in recorded:
        where = f"parity: batches: {batch.name!r}"
        match = SIZE_BATCH.fullmatch(batch.name)
        if batch.name in (FIRST_REAL_ROWS, REAL_ROWS):
            limit = largest if batch.name == REAL_ROWS else without.generator.few_rows
            if not 1 <= batch.rows <= limit:
                raise claims.error(f"{where}: rows", f"expected 1 to {limit}, got {batch.rows}")
        elif match is not None and match["dim"] in dims:
            continue  # the sizes depend on those of the rows
        elif batch.name not in counts:
            raise claims.error(
                where, f"expected a batch that turnpike makes for this network, got one of {batch.rows} rows"
            )
        elif batch.rows != counts[batch.name]:
            raise claims.error(f"{where}: rows", f"expected {counts[batch.name]}, got {batch.rows}")


def _missing(counts: dict[str, int], names: Sequence[str], generator: BatchGenerator) -> Iterator[str]:
    """The batches that are always there, and not among the names."""
    dims = {dim for dim in generator.sizes.sizes if dim != generator.sizes.batch}
    for name in counts:
        match = SIZE_BATCH.fullmatch(name)
        if name not in names and not (match is not None and match["dim"] in dims):
            yield name
    if FIRST_REAL_ROWS not in names:
        yield FIRST_REAL_ROWS
