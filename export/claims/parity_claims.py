"""Checks what a manifest says about its proof, against the proof that was made now."""

from __future__ import annotations

from turnpike.export.claims.batch_claims import check_batches
from turnpike.export.claims.checklist import Checklist
from turnpike.export.claims.verified_file import VerifiedFile
from turnpike.export.parity.error_stats import EPS
from turnpike.export.parity.verdict import pooled_rms
from turnpike.service.artifact.devices import PROVIDERS
from turnpike.service.artifact.proof_records import Parity, TensorParity

FIGURES = ("rms", "rms_torch", "max", "max_torch")
# How many times an error may be larger or smaller on another machine, whose kernels add in another order.
# Rounding the exact value alone makes an error, which is the same everywhere.
FIGURE_FACTOR = 100.0
# share of one rounding of a tensor below which errors are not told apart
SMALLEST_SHARE = 1e-6


def check_parity(claims: Checklist, file: VerifiedFile) -> bool:
    """Check the record of the proof; returns whether the rows of the source are those of the file."""
    recorded, fresh = file.manifest.parity, file.proof.parity
    claims.check("parity.verdict")  # there is one
    claims.expect("parity.reference", fresh.reference, recorded.reference)
    _check_providers(claims, recorded, fresh)
    has_rows = check_batches(claims, file)
    _check_ranges(claims, file)
    _check_tensors(claims, file)
    return has_rows


def _check_providers(claims: Checklist, recorded: Parity, fresh: Parity) -> None:
    """Check that an export can name these providers; only those that ran here are known to agree."""
    if unknown := [name for name in recorded.providers if name not in PROVIDERS.values()]:
        raise claims.error(
            "parity: providers", f"expected some of {', '.join(PROVIDERS.values())}, got {unknown[0]!r}"
        )
    if PROVIDERS["cpu"] not in recorded.providers:
        got = ", ".join(recorded.providers) or "none"
        raise claims.error(
            "parity: providers", f"expected {PROVIDERS['cpu']}, where every proof runs, got {got}"
        )
    if len(set(recorded.providers)) < len(recorded.providers):
        raise claims.error(
            "parity: providers", f"expected distinct ones, got {', '.join(recorded.providers)}"
        )
    others = [name for name in recorded.providers if name not in fresh.providers]
    if others:
        claims.claim(f"not run here: {', '.join(others)}", "parity.providers")
    else:
        claims.check("parity.providers")


def _check_ranges(claims: Checklist, file: VerifiedFile) -> None:
    """Check the inputs of the ranges. The proof was made inside of them now."""
    ranges = file.manifest.parity.input_ranges
    inputs = {tensor.name: tensor.dtype for tensor in file.runtime.inputs if tensor.dtype != "bool"}
    seen: set[str] = set()
    for bounds in ranges:
        if bounds.input not in inputs or bounds.input in seen:
            names = ", ".join(inputs) or "of which there is none"
            raise claims.error(
                "parity: input_ranges",
                f"expected each input of numbers at most once, {names}, got {bounds.input!r}",
            )
        if not bounds.low < bounds.high:
            raise claims.error(
                f"parity: input_ranges: {bounds.input}", f"expected low below high, got {bounds.low:g} twice"
            )
        seen.add(bounds.input)
    claims.check("parity.input_ranges")


def _check_tensors(claims: Checklist, file: VerifiedFile) -> None:
    """Check the names of the tensors exactly, and their errors up to what machines make of rounding."""
    recorded, fresh = file.manifest.parity, file.proof.parity
    names = tuple(tensor.name for tensor in fresh.tensors)
    claims.expect("parity.tensors.name", names, tuple(tensor.name for tensor in recorded.tensors))
    fields = tuple(f"parity.tensors.{figure}" for figure in FIGURES)
    if recorded.providers != fresh.providers:
        claims.claim("of other devices", *fields)
        return
    for ours, theirs in zip(fresh.tensors, recorded.tensors, strict=True):
        smallest = SMALLEST_SHARE * EPS * _scale(file, ours)
        for figure in FIGURES:
            expected, got = float(getattr(ours, figure)), float(getattr(theirs, figure))
            if not max(expected, got) <= FIGURE_FACTOR * max(min(expected, got), smallest):
                raise claims.error(
                    f"parity: tensors: {ours.name}: {figure}",
                    f"expected within {FIGURE_FACTOR:g} times of {expected:.1e}, measured now, got {got:.1e}",
                )
    claims.check(*fields)


def _scale(file: VerifiedFile, tensor: TensorParity) -> float:
    """The root mean square of a tensor over all ordinary batches."""
    return pooled_rms(
        [
            (error.cells, error.scale)
            for error in file.proof.errors
            if error.tensor == tensor.name and error.ordinary
        ]
    )
