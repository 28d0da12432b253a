"""Checks what was measured on rows: gates, lesions, ranges, samples, and a lower precision."""

from __future__ import annotations

import math
from collections.abc import Iterator

from pydantic import BaseModel

from turnpike.export.claims.checklist import NO_ROWS, OTHER_ROWS, SPLIT_ROWS, Checklist
from turnpike.export.claims.verified_file import VerifiedFile
from turnpike.export.measure.gate_profile import BINS, EPSILON, QUANTILE_LEVELS, profile_gates
from turnpike.export.measure.lesion_curve import gates_by_layer, lesion_curve
from turnpike.export.measure.run_rows import rows_digest
from turnpike.export.measure.sample_rows import choose_samples, equal_rows, input_ranges
from turnpike.export.network import Rows
from turnpike.service.artifact.manifest import Manifest, Profile, Sample
from turnpike.service.artifact.runtime import Runtime, open_model
from turnpike.service.artifact.sample_rows import check_sample_rows

# how far a figure may be off on another machine: shares and gates are between 0 and 1, losses are not
ABSOLUTE_TOLERANCE, RELATIVE_TOLERANCE = 1e-3, 1e-2
# rows whose answer may be another on another machine
FLIPPED_ROWS = 2
# an int8 graph rounds to 1 part in 127, and another machine may round a number the other way
VARIANT_TOLERANCE = 0.1


def check_measured(claims: Checklist, file: VerifiedFile, *, has_rows: bool) -> None:
    """Check the measurements; `has_rows` says whether the rows of the source are those of the file.

    Without these rows, only what the graph tells is checked: names of gates, numbers of units and labels.
    """
    _expect_samples_fit(claims, file)
    _check_profile(claims, file, has_rows=has_rows)
    _check_lesion(claims, file, has_rows=has_rows)
    _check_rows(claims, file, has_rows=has_rows)
    _check_variant(claims, file, has_rows=has_rows)


def no_rows(file: VerifiedFile) -> str:
    """Why something that was measured on rows is not checked."""
    if file.manifest.compression is not None:
        return SPLIT_ROWS
    return NO_ROWS if file.network.rows is None else OTHER_ROWS


def _fp32_runtime(file: VerifiedFile) -> Runtime:
    """The graph in fp32 on the CPU, on which gates are measured."""
    return open_model(file.path if file.is_fp32 else file.graph.data)


def _check_profile(claims: Checklist, file: VerifiedFile, *, has_rows: bool) -> None:
    manifest, gates = file.manifest, file.graph.gates.gates
    profile = manifest.profile
    if profile is None:
        claims.leave_empty("profile")
        return
    names = tuple(layer.gate for layer in profile.layers)
    claims.expect("profile.layers.gate", tuple(gate.name for gate in gates), names)
    _expect_profile_fits(claims, file, profile)
    if not has_rows or file.network.rows is None:
        claims.claim(no_rows(file), "profile")
        return
    rows, runtime = file.network.rows, _fp32_runtime(file)
    fresh = profile_gates(runtime, gates, rows, file.network.labels)
    first = rows.take(slice(fresh.rows))
    if profile.digest != fresh.digest and profile.digest == rows_digest(first):
        # files of versions before the rows were spread over all
        fresh = profile_gates(runtime, gates, first, file.network.labels)
    _expect_near(claims, "profile", fresh, profile)
    claims.check("profile")


def _expect_profile_fits(claims: Checklist, file: VerifiedFile, profile: Profile) -> None:
    """Check the sizes and constants of a profile."""
    claims.expect("profile.epsilon", EPSILON, profile.epsilon)
    claims.expect("profile.levels", QUANTILE_LEVELS, profile.levels)
    for gate, layer in zip(file.graph.gates.gates, profile.layers, strict=True):
        sizes = {"quantiles": len(QUANTILE_LEVELS), "histogram": BINS}
        sizes |= {} if gate.units is None else {"units": gate.units, "units_sd": gate.units}
        for field, size in sizes.items():
            if (got := len(getattr(layer, field))) != size:
                raise claims.error(f"profile: {layer.gate}: {field}", f"expected {size} numbers, got {got}")
    if profile.contrast and len(profile.contrast) != len(profile.layers):
        raise claims.error(
            "profile: contrast", f"expected {len(profile.layers)} gates, got {len(profile.contrast)}"
        )


def _check_lesion(claims: Checklist, file: VerifiedFile, *, has_rows: bool) -> None:
    gates, lesion = file.graph.gates.gates, file.manifest.lesion
    if lesion is None:
        claims.leave_empty("lesion")
        return
    closable = [
        layer
        for layer, layer_gates in gates_by_layer(gates).items()
        if all(gate.levers for gate in layer_gates)
    ]
    layers = [layer.layer for layer in lesion.layers]
    # a layer is left out if the network gives no finite numbers without it
    if layers != [layer for layer in closable if layer in layers]:
        raise claims.error(
            "lesion: layers",
            f"expected layers that can be closed, {', '.join(map(str, closable)) or 'none'}, in order, got "
            f"{', '.join(map(str, layers))}",
        )
    claims.check("lesion.layers.layer")
    if not has_rows or file.network.rows is None:
        claims.claim(no_rows(file), "lesion")
        return
    rows, runtime, output = file.network.rows, _fp32_runtime(file), file.graph.public_outputs[0]
    fresh = lesion_curve(runtime, gates, rows, output, file.graph.biases)
    if fresh is None:
        raise claims.error("lesion", "expected none, because the rows have no true answers, got one")
    tolerance = FLIPPED_ROWS / max(1, fresh.rows)
    if fresh.rows < len(rows) and _difference("lesion", fresh, lesion, tolerance):
        # files of versions before the rows were spread over all
        first = lesion_curve(runtime, gates, rows.take(slice(fresh.rows)), output, file.graph.biases)
        fresh = fresh if first is None or _difference("lesion", first, lesion, tolerance) else first
    _expect_near(claims, "lesion", fresh, lesion, tolerance)
    claims.check("lesion")


def _check_rows(claims: Checklist, file: VerifiedFile, *, has_rows: bool) -> None:
    """Check the ranges of the inputs, and the samples."""
    manifest, rows = file.manifest, file.network.rows
    for field, recorded in (("ranges", manifest.ranges), ("samples", manifest.samples)):
        if not recorded:
            claims.leave_empty(field)
        elif not has_rows or rows is None:
            claims.claim(no_rows(file), field)
    if not has_rows or rows is None:
        return
    if manifest.ranges:
        claims.expect("ranges", input_ranges(rows), manifest.ranges, "of the rows")
    if manifest.samples:
        expected = _expected_samples(manifest, rows)
        wrong = [
            number
            for number, sample in enumerate(manifest.samples)
            if number >= len(expected) or sample != expected[number]
        ]
        if wrong:
            raise claims.error(f"samples[{wrong[0]}]", "expected a row of the data, got another")
        claims.check("samples")


def _expected_samples(manifest: Manifest, rows: Rows) -> tuple[Sample, ...]:
    """The samples for these rows.

    One row may stand before the others of its class, since its answer changes when a layer is closed.
    Rounding decides which row that is, and older files have none.
    """
    samples, labels = manifest.samples, manifest.labels
    expected = choose_samples(rows, len(samples), labels)
    other = next((got for got, sample in zip(samples, expected, strict=False) if got != sample), None)
    for flipped in [] if other is None else equal_rows(other, rows):
        if (chosen := choose_samples(rows, len(samples), labels, flipped)) == samples:
            return chosen
    return expected


def _expect_samples_fit(claims: Checklist, file: VerifiedFile) -> None:
    """Check that samples, ranges and features fit the inputs, and that the labels of samples are labels."""
    manifest = file.manifest
    try:
        check_sample_rows(manifest, {tensor.name: tensor for tensor in file.runtime.inputs})
    except ValueError as error:
        field, _, problem = str(error).partition(": ")
        raise claims.error(field, problem) from error
    for number, sample in enumerate(manifest.samples):
        if sample.label and manifest.labels and sample.label not in manifest.labels:
            raise claims.error(
                f"samples[{number}]: label", f"expected one of the labels, got {sample.label!r}"
            )


def _check_variant(claims: Checklist, file: VerifiedFile, *, has_rows: bool) -> None:
    """Check how a lower precision compares with fp32. Without real rows, the random ones must be the same."""
    manifest, comparison = file.manifest, file.comparison
    variant = manifest.variant
    if manifest.precision == "fp32":
        if variant is not None:
            raise claims.error("variant", "expected none for a file in fp32, got one")
        claims.leave_empty("variant")
        return
    if variant is None:
        raise claims.error("variant", f"expected a comparison of {manifest.precision} with fp32, got none")
    if file.runtime.device != "cpu":
        claims.claim("of the CPU, and it was compared on another device", "variant")
        return
    same_rows = has_rows or (
        file.network.rows is None and file.proof.parity.batches == manifest.parity.batches
    )
    if comparison is None or not same_rows:
        reason = (
            no_rows(file) if manifest.ranges else "other random rows were used: give the --seed of the file"
        )
        claims.claim(reason, "variant")
        return
    for field, expected in comparison.variant:
        got = getattr(variant, field)
        tolerance = FLIPPED_ROWS / comparison.rows if field in ("agreement", "metric", "metric_fp32") else 0.0
        relative = VARIANT_TOLERANCE if field == "error" else 0.0
        if not _is_near(expected, got, tolerance, relative):
            raise claims.error(f"variant: {field}", f"expected {expected}, got {got}")
    claims.check("variant")


def _expect_near(
    claims: Checklist, field: str, fresh: BaseModel, recorded: BaseModel, tolerance: float = 0.0
) -> None:
    """Check that two records are the same, up to rounding in their floats."""
    if difference := _difference(field, fresh, recorded, tolerance):
        raise claims.error(*difference)


def _difference(
    field: str, fresh: BaseModel, recorded: BaseModel, tolerance: float
) -> tuple[str, str] | None:
    """Where two records differ by more than rounding, and how; None if nowhere."""
    for (where, expected), (_, got) in zip(_values(fresh, field), _values(recorded, field), strict=False):
        if not _is_near(expected, got, ABSOLUTE_TOLERANCE + tolerance, RELATIVE_TOLERANCE):
            return where, f"expected {expected}, got {got}"
    return None


def _is_near(expected: object, got: object, absolute: float, relative: float) -> bool:
    if isinstance(expected, float) and isinstance(got, float):
        return math.isclose(expected, got, rel_tol=relative, abs_tol=absolute)
    return expected == got


def _values(record: object, where: str) -> Iterator[tuple[str, object]]:
    """The plain values inside a record, with their places; first the number of items of each list."""
    if isinstance(record, BaseModel):
        for name, value in record:
            yield from _values(value, f"{where}: {name}")
    elif isinstance(record, tuple):
        yield f"{where}: length", len(record)
        for number, value in enumerate(record):
            yield from _values(value, f"{where}[{number}]")
    else:
        yield where, record
