"""The `turnpike` command, and the library's public names: `from turnpike import HighwayLayer, export_model`.

A package is imported only when one of its commands or names is used. So `turnpike serve` never imports torch,
and `import turnpike` imports neither torch, onnx nor onnxruntime.
"""

from __future__ import annotations

import atexit
import contextlib
import gc
import importlib
import re
import sys
import traceback
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import typer
from typer.core import TyperGroup

if TYPE_CHECKING:
    from client.client import AsyncClient, Client
    from client.errors import (
        ClientError,
        DeadlineError,
        InputError,
        RequestRefusedError,
        ServerError,
        UnavailableError,
    )
    from client.results import Gates, Lesion
    from export.compress.compress import CompressionResult, compress_model
    from export.pipeline import ExportResult, export_model
    from export.verify import VerificationResult, verify_model
    from models.layers.activation import Maxout
    from models.layers.gate import ConvGate1d, ConvGate2d, DenseGate, GateRecording, record_gates
    from models.layers.highway import ConvHighwayLayer, HighwayLayer
    from models.layers.resize import SubSample, ZeroPad
    from models.layers.transform import PlainLayer, ResidualLayer
    from models.networks.cbhg import Cbhg, CbhgConfig, CbhgNet
    from models.networks.character_cnn import CharacterCnn, CharacterCnnConfig, CharacterEncoder
    from models.networks.feedforward import ConvConfig, ConvNet, Mlp, MlpConfig
    from models.networks.grid_lstm import GridLstm, GridLstmBlock, GridLstmConfig
    from models.networks.recurrent import (
        HighwayLstm,
        HighwayLstmConfig,
        HighwayLstmLayer,
        RecurrentHighway,
        Rhn,
        RhnConfig,
    )
    from models.networks.transformer import HighwayJoin, Transformer, TransformerConfig
    from service.artifact.runtime import Runtime, open_model

__all__ = [
    "AsyncClient",
    "Cbhg",
    "CbhgConfig",
    "CbhgNet",
    "CharacterCnn",
    "CharacterCnnConfig",
    "CharacterEncoder",
    "Client",
    "ClientError",
    "CompressionResult",
    "ConvConfig",
    "ConvGate1d",
    "ConvGate2d",
    "ConvHighwayLayer",
    "ConvNet",
    "DeadlineError",
    "DenseGate",
    "ExportResult",
    "GateRecording",
    "Gates",
    "GridLstm",
    "GridLstmBlock",
    "GridLstmConfig",
    "HighwayJoin",
    "HighwayLayer",
    "HighwayLstm",
    "HighwayLstmConfig",
    "HighwayLstmLayer",
    "InputError",
    "Lesion",
    "Maxout",
    "Mlp",
    "MlpConfig",
    "PlainLayer",
    "RecurrentHighway",
    "RequestRefusedError",
    "ResidualLayer",
    "Rhn",
    "RhnConfig",
    "Runtime",
    "ServerError",
    "SubSample",
    "Transformer",
    "TransformerConfig",
    "UnavailableError",
    "VerificationResult",
    "ZeroPad",
    "compress_model",
    "export_model",
    "open_model",
    "record_gates",
    "verify_model",
]

# module: the names above that it defines; the imports for type checkers at the top say the same
PUBLIC_NAMES = {
    "client.client": ("AsyncClient", "Client"),
    "client.errors": (
        "ClientError",
        "DeadlineError",
        "InputError",
        "RequestRefusedError",
        "ServerError",
        "UnavailableError",
    ),
    "client.results": ("Gates", "Lesion"),
    "export.compress.compress": ("CompressionResult", "compress_model"),
    "export.pipeline": ("ExportResult", "export_model"),
    "export.verify": ("VerificationResult", "verify_model"),
    "models.layers.activation": ("Maxout",),
    "models.layers.gate": ("ConvGate1d", "ConvGate2d", "DenseGate", "GateRecording", "record_gates"),
    "models.layers.highway": ("ConvHighwayLayer", "HighwayLayer"),
    "models.layers.resize": ("SubSample", "ZeroPad"),
    "models.layers.transform": ("PlainLayer", "ResidualLayer"),
    "models.networks.cbhg": ("Cbhg", "CbhgConfig", "CbhgNet"),
    "models.networks.character_cnn": ("CharacterCnn", "CharacterCnnConfig", "CharacterEncoder"),
    "models.networks.feedforward": ("ConvConfig", "ConvNet", "Mlp", "MlpConfig"),
    "models.networks.grid_lstm": ("GridLstm", "GridLstmBlock", "GridLstmConfig"),
    "models.networks.recurrent": (
        "HighwayLstm",
        "HighwayLstmConfig",
        "HighwayLstmLayer",
        "RecurrentHighway",
        "Rhn",
        "RhnConfig",
    ),
    "models.networks.transformer": ("HighwayJoin", "Transformer", "TransformerConfig"),
    "service.artifact.runtime": ("Runtime", "open_model"),
}

if not TYPE_CHECKING:  # type checkers read the imports above, and so report a name that does not exist

    def __getattr__(name: str) -> Any:
        for module, names in PUBLIC_NAMES.items():
            if name in names:
                return getattr(importlib.import_module(module), name)
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})


# command: (module with a typer application, the extra that installs what it needs, one line of help)
COMMANDS = {
    "train": ("models.cli.train", "train", "Train a preset, keep the best network, and draw its gates."),
    "compare": ("models.cli.compare", "train", "Compare plain, residual and highway networks by depth."),
    "export": (
        "export.cli.export",
        "export",
        "Export to ONNX with proved parity and visible gates.",
    ),
    "compress": ("export.cli.compress", "export", "Remove the units whose gates change least, with proof."),
    "verify": ("export.cli.verify", "export", "Prove an exported file again, on any device."),
    "inspect": ("service.cli.inspect", "serve", "Show what a model file contains."),
    "predict": (
        "service.cli.predict",
        "serve",
        "Predict the rows of a table, with a model file or a running service.",
    ),
    "score": ("score.cli.command", "score", "Score large files of rows, on all cores, resumably."),
    "serve": ("service.cli.serve", "serve", "Serve models and their gates over HTTP."),
    "loadtest": (
        "loadtest.cli.command",
        "loadtest",
        "Load a server, check its answers, measure latency.",
    ),
    "tune": ("tune.cli.command", "serve,loadtest", "Find the fastest serving settings for this machine."),
    "demo": ("export.cli.demo", "export", "Train, export and prove the default network in a minute."),
}


class CommandGroup(TyperGroup):
    """A command group that imports a command when it is called, and prints an error as one line."""

    verbose = False
    called = ""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        # --verbose is accepted anywhere on the line; shell completion parses unfinished lines without it
        if "--verbose" in args and not ctx.resilient_parsing:
            args = [arg for arg in args if arg != "--verbose"]
            self.verbose = True
        if not args:
            return super().parse_args(ctx, args)  # shows the help
        with self.errors_as_one_line():
            return super().parse_args(ctx, args)

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        if args and args[0] in COMMANDS:
            self.called = args[0]
            self.commands[args[0]] = load_command(args[0])
        return super().resolve_command(ctx, args)

    def invoke(self, ctx: Any) -> Any:
        with self.errors_as_one_line():
            return super().invoke(ctx)

    @contextlib.contextmanager
    def errors_as_one_line(self) -> Iterator[None]:
        """Print an error as one line, after its traceback if --verbose was given, and exit."""
        try:
            yield
        except (typer.Exit, typer.Abort):
            raise
        except Exception as error:
            if self.verbose:
                traceback.print_exc()
            if isinstance(error, ModuleNotFoundError) and self.called:
                message, status = describe_error(MissingExtraError(self.called, str(error.name)))
            else:
                message, status = describe_error(error)
            from rich.console import Console
            from rich.markup import escape

            console = Console(stderr=True, soft_wrap=True)
            console.print(f"[bold red]error:[/] {escape(message)}", highlight=False)
            raise typer.Exit(status) from error


def load_command(name: str) -> Any:
    """Import the module of a command, which imports the large libraries when it is called."""
    command = typer.main.get_command(importlib.import_module(COMMANDS[name][0]).app)
    command.name = name
    return command


class MissingExtraError(Exception):
    """A library of a command is not installed. The message names the extra that installs it."""

    exit_status = 1

    def __init__(self, command: str, module: str) -> None:
        extra = COMMANDS[command][1]
        super().__init__(
            f"turnpike {command} needs {module}, which is not installed: pip install -e '.[{extra}]'"
        )


# codes that color text in a terminal; libraries write them into some messages
TERMINAL_CODES = re.compile(r"\x1b\[[0-9;]*[A-Za-z]")


def describe_error(error: Exception) -> tuple[str, int]:
    """Return a one-line message and the exit status: 2 for wrong use, 1 for a job that failed."""
    if hasattr(error, "format_message"):  # raised by the command-line parser
        context = getattr(error, "ctx", None)
        hint = f"; see {context.command_path} --help" if context else ""
        return " ".join(error.format_message().split()).rstrip(".") + hint, getattr(error, "exit_code", 2)
    text = str(error)
    if isinstance(error, OSError) and error.strerror:
        place = error.filename or ("" if print_empty_line() else "standard output")
        text = f"{place}: {error.strerror}" if place else error.strerror
    message = " ".join(TERMINAL_CODES.sub("", text).split())
    if hasattr(error, "exit_status") or isinstance(error, OSError):
        return message or type(error).__name__, getattr(error, "exit_status", 1)
    kind = f"{type(error).__name__}: {message}" if message else type(error).__name__
    return f"unexpected {kind} (--verbose shows where)", 1


def print_empty_line() -> bool:
    """Print an empty line; returns False if that fails, as into a file on a full disk."""
    try:
        sys.stdout.write("\n")
        sys.stdout.flush()
    except OSError:
        return False
    return True


app = typer.Typer(
    cls=CommandGroup,
    name="turnpike",
    help="Train highway networks, export and serve them, and see what their gates do.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)

for _name, (_, _, _help) in COMMANDS.items():
    # a placeholder for the list of commands; `resolve_command` replaces it
    app.command(_name, help=_help)(lambda: None)


def _print_version(requested: bool) -> None:
    if requested:
        from importlib.metadata import version

        sys.stdout.write(f"turnpike {version('turnpike')}\n")
        raise typer.Exit


@app.callback()
def options(
    version: bool = typer.Option(
        False, "--version", callback=_print_version, is_eager=True, help="Show the version and exit."
    ),
    verbose: bool = typer.Option(False, "--verbose", help="Also show the traceback of an error."),
) -> None:
    """Declare the options that come before a command; `CommandGroup` and `_print_version` act on them."""


def main() -> None:
    """Run the command line."""
    # without this, Python's last garbage collection takes a second if PyTorch was imported
    atexit.register(gc.freeze)
    app(prog_name="turnpike")


if __name__ == "__main__":
    main()
