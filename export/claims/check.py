"""`check_claims`: checks every field of a manifest that can be computed, and lists the others."""

from __future__ import annotations

from turnpike.export.claims.checklist import Checklist, Claims
from turnpike.export.claims.compression_claims import check_compression
from turnpike.export.claims.graph_claims import check_graph
from turnpike.export.claims.identity_claims import check_identity, check_optimizers
from turnpike.export.claims.measured_claims import check_measured
from turnpike.export.claims.parity_claims import check_parity
from turnpike.export.claims.source_claims import check_source
from turnpike.export.claims.verified_file import VerifiedFile
from turnpike.export.compress.verify_cut import VerifiedCut


def check_claims(file: VerifiedFile, cut: VerifiedCut | None = None) -> Claims:
    """Compare a manifest with what was computed from the source, and from the graph that was exported here.

    Args:
        file: The file, and what was computed.
        cut: For a compressed file: the network that it was made from, and what was removed.

    Returns:
        The fields that were checked, and those that the file alone claims.

    Raises:
        ParityError: A field is false.
    """
    claims = Checklist(file.path)
    check_graph(claims, file)
    check_identity(claims, file)
    check_optimizers(claims, file)
    has_rows = check_parity(claims, file)
    check_source(claims, file, has_rows=has_rows)
    # a compression measures on rows that it splits itself
    check_measured(claims, file, has_rows=has_rows and cut is None)
    check_compression(claims, file, cut)
    return claims.result()
