"""Checks what a manifest says about a compression, against the cut that was made here from its source."""

from __future__ import annotations

from turnpike.export.claims.checklist import SPLIT_ROWS, Checklist
from turnpike.export.claims.verified_file import VerifiedFile
from turnpike.export.compress.verify_cut import VerifiedCut
from turnpike.export.output.model_bytes import weights_digest

# what was measured on rows that only a compression splits
ON_ROWS = (
    "calibration_rows",
    "calibration_digest",
    "rows",
    "agreement",
    "metric",
    "metric_whole",
    "curve",
)


def check_compression(claims: Checklist, file: VerifiedFile, cut: VerifiedCut | None) -> None:
    """Check what was removed."""
    compression = file.manifest.compression
    if compression is None or cut is None:
        claims.leave_empty("compression")
        return
    for field, expected in (
        ("units", sum(map(len, cut.kept.values()))),
        ("units_whole", sum(layer.units for layer in cut.layers)),
        ("macs", cut.graph.macs),
        ("macs_whole", cut.graph.macs_whole),
    ):
        claims.expect(f"compression.{field}", expected, getattr(compression, field), "as cut here")
    if compression.finetune_epochs:
        claims.claim("the network was trained after the cut", "compression.original")
    else:
        digest = weights_digest(cut.whole.graph.model)
        claims.expect("compression.original", digest, compression.original, "of the source")
    claims.claim("only the training after the cut knows it", "compression.finetune_epochs")
    if compression.bytes_whole == len(cut.whole.graph.data):
        claims.check("compression.bytes_whole")
    else:
        claims.claim("the source is another file of this network", "compression.bytes_whole")
    claims.claim(SPLIT_ROWS, *(f"compression.{name}" for name in ON_ROWS))
    claims.claim("measured on the machine of the compression", "compression.faster")
