"""The commands: the module of each, and the extra that installs its libraries.

Needs no library, so that the command can say which extra is missing.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from turnpike.common.distribution import needs_extra


class Command(NamedTuple):
    """A command of `turnpike`."""

    module: str  # has a typer application, `app`
    extra: str
    help: str  # one line


COMMANDS = {
    "train": Command(
        "turnpike.models.cli.train", "train", "Train a preset, keep the best network, and draw its gates."
    ),
    "compare": Command(
        "turnpike.models.cli.compare", "train", "Compare plain, residual and highway networks by depth."
    ),
    "export": Command(
        "turnpike.export.cli.export",
        "export",
        "Export to ONNX, proved for every input, with visible gates.",
    ),
    "compress": Command(
        "turnpike.export.cli.compress", "export", "Remove the units whose gates change least, with proof."
    ),
    "verify": Command("turnpike.export.cli.verify", "export", "Prove an exported file again, on any device."),
    "inspect": Command("turnpike.service.cli.inspect", "serve", "Show what a model file contains."),
    "predict": Command(
        "turnpike.service.cli.predict",
        "serve",
        "Predict the rows of a table, with a model file or a running service.",
    ),
    "score": Command(
        "turnpike.score.cli.command", "score", "Score large files of rows, on all cores, resumably."
    ),
    "serve": Command("turnpike.service.cli.serve", "serve", "Serve models and their gates over HTTP."),
    "loadtest": Command(
        "turnpike.loadtest.cli.command", "loadtest", "Load a server, check its answers, measure latency."
    ),
    "tune": Command(
        "turnpike.tune.cli.command", "serve,loadtest", "Find the fastest serving settings for this machine."
    ),
    "demo": Command(
        "turnpike.export.cli.demo", "export", "Train, export and prove the default network in a minute."
    ),
}

# commands that an option makes another one, of another package
VARIANTS = {
    "inspect --runtime": Command(
        "turnpike.export.cli.inspect_runtime", "export", "Show what onnxruntime makes of a file."
    )
}


def command_of(words: Sequence[str]) -> str:
    """The name in `COMMANDS` or `VARIANTS` of a command line without `turnpike`; "" for an unknown one."""
    if not words or words[0] not in COMMANDS:
        return ""
    names = (f"{words[0]} {word}" for word in words[1:])
    return next((name for name in names if name in VARIANTS), words[0])


def missing_extra(command: str, module: str) -> str:
    """The message that a library of a command is not installed, with the extra that installs it.

    Args:
        command: The name of the command; "" or an unknown name for `turnpike` itself.
        module: The module that is missing.
    """
    found = COMMANDS.get(command) or VARIANTS.get(command)
    if found is not None:
        return needs_extra(f"turnpike {command}", module, found.extra)
    extras = dict.fromkeys(extra for entry in COMMANDS.values() for extra in entry.extra.split(","))
    return f"{needs_extra('turnpike', module, 'serve')}, or another extra: {', '.join(extras)}"
