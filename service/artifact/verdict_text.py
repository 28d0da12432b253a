"""What a manifest proves and what it measured, in sentences that the commands and the certificate show.

"Proved" means decided for every input. Older versions called a file proved if it agreed with its network on
batches of rows.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

from turnpike.service.artifact.manifest import Manifest
from turnpike.service.artifact.proof_records import Identity, Parity


def is_proved(manifest: Manifest) -> bool:
    """Whether the graph in fp32 was decided to be the network's function of every input."""
    return manifest.identity is not None and manifest.identity.proved


def verdict(manifest: Manifest) -> str:
    """In a few words: `proved`, or on how many batches the file agreed with the network."""
    batches = len(manifest.parity.batches)
    return "proved" if is_proved(manifest) else f"agreed on {batches} batch{'es' if batches != 1 else ''}"


def identity_text(manifest: Manifest) -> str:
    """Whether file and network are the same function, and how that is known."""
    identity = manifest.identity
    if identity is None:
        return (
            f"not proved: the file {verdict(manifest)}, and was exported by a turnpike that decided nothing "
            "more. Export it again to have it decided for every input"
        )
    graph = "the file" if manifest.precision == "fp32" else "the fp32 graph that the file was made from"
    if not identity.proved:
        return f"not proved: {graph} {verdict(manifest)}, and nothing more is decided: {identity.reason}"
    # a compressed file is another function, and that of the network whose removed units carry
    network = "the network" if manifest.compression is None else "the network with the removed units carried"
    return (
        f"proved: in exact arithmetic, {graph} is the same function of every input as {network}, in all "
        f"{identity.compared} outputs, gates and layers{_rounded_text(identity)}{_levers_text(identity)}; "
        f"{chance_text(identity)}"
    )


def chance_text(identity: Identity) -> str:
    """The chance of error, rounded up to a power of ten."""
    return f"chance of error below 1e{math.ceil(math.log10(identity.error_bound)):+03d}"


def _levers_text(identity: Identity) -> str:
    """What is decided about the levers of the file."""
    facts = []
    if identity.levers:
        facts.append(f"{_count(identity.levers, 'gate')} moved by levers alone")
    if identity.carried:
        carry = "that carries its" if identity.carried == 1 else "that carry their"
        facts.append(f"{_count(identity.carried, 'layer')} {carry} input when closed")
    return f", with {' and '.join(facts)}" if facts else ""


def _count(number: int, name: str) -> str:
    return f"{number} {name}{'s' if number != 1 else ''}"


def _rounded_text(identity: Identity) -> str:
    count = len(identity.rounded)
    if not count:
        return ""
    names = ", ".join(constant.name for constant in identity.rounded[:3])
    return f", up to {count} rounded constant{'s' if count > 1 else ''} ({names}{', …' if count > 3 else ''})"


def rounding_text(parity: Parity) -> str:
    """How far float32 strays: the tensor whose error is the largest beside PyTorch's."""
    rows = sum(batch.rows for batch in parity.batches)
    measured = (
        f"measured on {len(parity.batches)} batches of {rows:,} rows in all ({', '.join(parity.providers)})"
    )
    if (worst := parity.worst) is None:
        return measured
    return (
        f"{measured}: rms error {worst.rms:.1e} in {worst.name}, where PyTorch's own is {worst.rms_torch:.1e}"
    )


def proof_lines(manifest: Manifest) -> Iterator[str]:
    """What is proved, what was measured, and what these leave out, a line each."""
    yield identity_text(manifest)
    yield f"rounding: {rounding_text(manifest.parity)}"
    yield from manifest.parity.limits
