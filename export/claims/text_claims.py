"""Checks what a manifest says about texts: the alphabet, and how texts become the ids of an input."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from turnpike.export.claims.checklist import NO_ROWS, OTHER_ROWS, Checklist
from turnpike.export.errors import SourceOptionError
from turnpike.export.network import Network, TextForm
from turnpike.export.text_input import prove_text_input
from turnpike.service.artifact.manifest import Manifest
from turnpike.service.artifact.text_records import TextInput

# what depends on the rows of the export
UNPROVED = {"texts": 0, "digest": ""}


def check_text(claims: Checklist, manifest: Manifest, network: Network, *, has_rows: bool) -> None:
    """Check alphabet and texts, by the code of the training and by the texts of the rows.

    `has_rows` says whether the rows of the source are those that the file was made with.
    """
    if network.training is not None or network.alphabet:
        claims.expect("alphabet", network.alphabet, manifest.alphabet, "of the training run")
    elif manifest.alphabet:
        claims.claim("the source records no alphabet", "alphabet")
    else:
        claims.leave_empty("alphabet")
    recorded = manifest.text
    if recorded is None:
        if network.text is not None:
            raise claims.error(
                "text", f"expected texts for {network.text.input}, as the source has, got none"
            )
        claims.leave_empty("text")
        return
    if recorded.input not in (names := [spec.name for spec in network.inputs]):
        raise claims.error("text: input", f"expected an input, {', '.join(names)}, got {recorded.input!r}")
    if network.text is None and (network.rows is None or not network.rows.texts):
        claims.claim("the source and its rows have no texts", "text")
        return
    try:
        proved = list(_proved_texts(network, recorded))
    except SourceOptionError as error:
        raise claims.error("text: scheme", f"{recorded.scheme}: {error}") from error
    _expect_same_text(claims, proved, recorded, has_rows=has_rows)
    if recorded in proved:
        claims.check("text")
    else:
        claims.check("text.input", "text.scheme", "text.words", "text.characters", "text.vocabulary")
        claims.claim(NO_ROWS if network.rows is None else OTHER_ROWS, "text.texts", "text.digest")


def _expect_same_text(
    claims: Checklist, proved: list[TextInput], recorded: TextInput, *, has_rows: bool
) -> None:
    """Raise a ParityError unless texts become ids as recorded, and the ids are those of the same texts."""
    for expected in proved:
        if expected.model_copy(update=UNPROVED) != recorded.model_copy(update=UNPROVED):
            raise claims.error("text", f"expected {expected}, got {recorded}")
    same_number = [expected for expected in proved if expected.texts == recorded.texts]
    if recorded not in proved and (has_rows or same_number):
        expected = (same_number or proved)[0]
        raise claims.error(
            "text: digest",
            f"expected {expected.texts} texts, {expected.digest[:12]}..., "
            f"got {recorded.texts}, {recorded.digest[:12]}...",
        )


def _proved_texts(network: Network, recorded: TextInput) -> Iterator[TextInput]:
    """What an export would record: with the rows, and without them if the training suffices."""
    form = network.text or TextForm(recorded.input, recorded.scheme, recorded.vocabulary)
    network = replace(network, text=form)
    proofs = [prove_text_input(network, network.rows)]
    if form.is_recorded and network.training is not None and network.rows is not None:
        proofs.append(prove_text_input(network, None))
    yield from filter(None, proofs)
