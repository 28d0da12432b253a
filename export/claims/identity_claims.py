"""Checks what a manifest says about decisions for every input, against those that were made now."""

from __future__ import annotations

from turnpike.export.claims.checklist import Checklist
from turnpike.export.claims.verified_file import VerifiedFile
from turnpike.export.identity.decision import Verdict
from turnpike.export.proved_graph import identity_record
from turnpike.service.artifact.proof_records import Identity

# difference of two constants in float64, in units in the last place of float32
ULP_TOLERANCE = 1e-3


def check_optimizers(claims: Checklist, file: VerifiedFile) -> None:
    """Check that onnxruntime makes the same function of the file, without the optimizers that it names."""
    verdict, disabled = file.optimized.decision.verdict, file.manifest.disabled_optimizers
    if verdict is Verdict.DIFFERENT:
        left_out = f" without {', '.join(disabled)}" if disabled else ""
        raise claims.error(
            "disabled_optimizers",
            f"onnxruntime's optimizer{left_out} makes {file.optimized.verdict_text}. A new export leaves out "
            "the optimizer that does it",
        )
    if verdict is Verdict.IDENTICAL:
        claims.check("disabled_optimizers")
    elif disabled:
        claims.claim("what onnxruntime makes of the file is not decided", "disabled_optimizers")
    else:
        claims.leave_empty("disabled_optimizers")


def check_identity(claims: Checklist, file: VerifiedFile) -> None:
    """Check verdict and counts. A verdict that this version cannot repeat is false."""
    recorded, fresh = file.manifest.identity, identity_record(file.identity)
    if recorded is None:
        claims.leave_empty("identity")
        return
    if fresh.proved and recorded == Identity(verdict="not decided", reason=recorded.reason):
        claims.claim("this version decides it: the file is identical", "identity")
        return
    claims.expect("identity.verdict", fresh.verdict, recorded.verdict, "as decided now")
    claims.expect("identity.compared", fresh.compared, recorded.compared)
    claims.expect("identity.runs", fresh.runs, recorded.runs)
    for field in ("levers", "carried", "rows"):
        claims.expect(f"identity.{field}", getattr(fresh, field), getattr(recorded, field))
    claims.expect("identity.error_bound", fresh.error_bound, recorded.error_bound)
    names = tuple(constant.name for constant in fresh.rounded)
    claims.expect("identity.rounded.name", names, tuple(constant.name for constant in recorded.rounded))
    for ours, theirs in zip(fresh.rounded, recorded.rounded, strict=True):
        if not abs(ours.ulp - theirs.ulp) <= ULP_TOLERANCE:
            raise claims.error(
                f"identity: rounded: {ours.name}", f"expected {ours.ulp:.3g} ulp, got {theirs.ulp:.3g}"
            )
    claims.check("identity.rounded.ulp")
    if recorded.reason == fresh.reason:
        claims.check("identity.reason")
    elif fresh.proved:
        raise claims.error("identity: reason", f"expected none with this verdict, got {recorded.reason!r}")
    else:
        claims.claim("this version gives another one", "identity.reason")
