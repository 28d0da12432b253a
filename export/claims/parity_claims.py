"""Checks what a manifest says about its proof, against the proof that was made now."""

from __future__ import annotations

from turnpike.export.claims.batch_claims import check_batches
from turnpike.export.claims.checklist import Checklist
from turnpike.export.claims.verified_file import VerifiedFile
from turnpike.export.parity.batches import LARGE_FACTORS, LARGE_VALUES
from turnpike.export.parity.error_stats import EPS
from turnpike.export.parity.verdict import pooled_rms
from turnpike.export.parity.weight_origins import MAX_ULP
from turnpike.service.artifact.devices import PROVIDERS
from turnpike.service.artifact.proof_records import Parity, TensorParity

FIGURES = ("rms", "rms_torch", "max", "max_torch")
# How many times an error may be larger or smaller on another machine, whose kernels add in another order.
# Rounding the exact value alone makes an error, which is the same everywhere.
FIGURE_FACTOR = 100.0
# share of one rounding of a tensor below which errors are not told apart
SMALLEST_SHARE = 1e-6
# difference of two constants of float64, in units in the last place of float32
ULP_TOLERANCE = 1e-3
OTHER_ROUNDING = "it depends on the rounding of the machine, and is another one here"


def check_parity(claims: Checklist, file: VerifiedFile) -> bool:
    """Check the record of the proof; returns whether the rows of the source are those of the file."""
    recorded, fresh = file.manifest.parity, file.proof.parity
    claims.check("parity.verdict")  # there is one
    claims.expect("parity.reference", fresh.reference, recorded.reference)
    _check_providers(claims, recorded, fresh)
    has_rows = check_batches(claims, file)
    claims.expect("parity.identical", fresh.identical, recorded.identical)
    claims.expect("parity.derived", fresh.derived, recorded.derived)
    tolerance = ULP_TOLERANCE if file.is_fp32 else MAX_ULP
    if not abs(recorded.ulp - fresh.ulp) <= tolerance:
        raise claims.error("parity: ulp", f"expected {fresh.ulp:.3g}, got {recorded.ulp:.3g}")
    claims.check("parity.ulp")
    _check_ranges(claims, file)
    _check_tensors(claims, file)
    _check_limits(claims, recorded, fresh)
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
    if recorded.explained or fresh.explained:
        claims.claim("rounding decides some values of this network", *fields)
        return
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


def _check_limits(claims: Checklist, recorded: Parity, fresh: Parity) -> None:
    """Check what the proof leaves out, which depends on rounding."""
    batches = {batch.name for batch in recorded.batches}
    batches |= {f"{LARGE_VALUES} x{factor:g}" for factor in LARGE_FACTORS}  # these rows are judged one by one
    names = [tensor.name for tensor in recorded.tensors]
    for unjudged in recorded.unjudged:
        if unjudged.batch not in batches or len(recorded.unjudged_names(unjudged.batch)) != unjudged.tensors:
            raise claims.error(
                "parity: unjudged",
                f"expected tensors and a batch of the proof, got {unjudged.tensors} from {unjudged.first!r} "
                f"in {unjudged.batch!r}",
            )
    if recorded.explained is not None and recorded.explained not in names:
        raise claims.error("parity: explained", f"expected a tensor of the proof, got {recorded.explained!r}")
    for field in ("unjudged", "explained"):
        if getattr(recorded, field) == getattr(fresh, field):
            claims.check(f"parity.{field}")
        else:
            claims.claim(OTHER_ROUNDING, f"parity.{field}")
