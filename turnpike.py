"""The front door: names the commands, and imports a package only when one of its commands is called."""

from __future__ import annotations

import contextlib
import importlib
import sys
import traceback
from collections.abc import Iterator
from typing import Any

import typer
from typer.core import TyperGroup

VERSION = "0.1.0"

# command: (module with a typer application, the extra that installs what it needs, one line of help)
COMMANDS = {
    "train": ("models.cli.train", "train", "Train a preset and keep the best network, with pictures."),
    "compare": ("models.cli.compare", "train", "Plain, residual and highway nets against depth."),
    "export": ("export.cli.export", "export", "A network to a verified ONNX file, its gates open."),
    "verify": ("export.cli.verify", "export", "Prove an exported file once more, on any device."),
    "inspect": ("service.cli.inspect", "serve", "What a model file says of itself."),
    "serve": ("service.cli.serve", "serve", "Models and their gates over HTTP."),
    "loadtest": ("loadtest.cli.command", "loadtest", "Load a server, and know its latency."),
    "tune": ("tune.cli", "serve,loadtest", "The settings that serve a model best on this machine."),
    "demo": ("export.cli.demo", "export", "The main job in a minute: train, export, prove."),
}


class FrontDoor(TyperGroup):
    """A group whose commands are light until one is called, and whose errors are one clear line."""

    verbose = False

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        # --verbose may stand anywhere; completion gives an unfinished line, which is left alone
        if "--verbose" in args and not ctx.resilient_parsing:
            args = [arg for arg in args if arg != "--verbose"]
            self.verbose = True
        if not args:
            return super().parse_args(ctx, args)  # which shows the help
        with self.errors_in_a_line():
            return super().parse_args(ctx, args)

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        if args and args[0] in COMMANDS:
            self.commands[args[0]] = load(args[0])
        return super().resolve_command(ctx, args)

    def invoke(self, ctx: Any) -> Any:
        with self.errors_in_a_line():
            return super().invoke(ctx)

    @contextlib.contextmanager
    def errors_in_a_line(self) -> Iterator[None]:
        """Say an error in one line, with its traceback where that is asked for, and exit."""
        try:
            yield
        except (typer.Exit, typer.Abort):
            raise
        except Exception as error:
            if self.verbose:
                traceback.print_exc()
            text, status = say(error)
            from rich.console import Console
            from rich.markup import escape

            Console(stderr=True, soft_wrap=True).print(f"[bold red]error:[/] {escape(text)}", highlight=False)
            raise typer.Exit(status) from error


def load(name: str) -> Any:
    """Import a command's package; a missing library is said with the extra that brings it."""
    module, extra, _ = COMMANDS[name]
    try:
        application = importlib.import_module(module).app
    except ModuleNotFoundError as error:
        raise MissingExtraError(name, extra, str(error.name)) from error
    command = typer.main.get_command(application)
    command.name = name
    return command


class MissingExtraError(Exception):
    """A command's libraries are not installed."""

    exit_status = 1

    def __init__(self, command: str, extra: str, module: str) -> None:
        super().__init__(
            f"turnpike {command} needs {module}, which is not installed: pip install -e '.[{extra}]'"
        )


def say(error: Exception) -> tuple[str, int]:
    """One line for a person, and the exit status: 2 for wrong use, 1 for a job that failed."""
    if hasattr(error, "format_message"):  # of the command line itself
        context = getattr(error, "ctx", None)
        hint = f"; see {context.command_path} --help" if context else ""
        return " ".join(error.format_message().split()).rstrip(".") + hint, getattr(error, "exit_code", 2)
    text = " ".join(str(error).split())
    if hasattr(error, "exit_status") or isinstance(error, OSError):
        return text, getattr(error, "exit_status", 1)
    return f"unexpected {type(error).__name__}: {text} (--verbose shows where)", 1


app = typer.Typer(
    cls=FrontDoor,
    name="turnpike",
    help="Train highway networks, and see which way the data goes.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)

for _name, (_, _, _help) in COMMANDS.items():
    app.command(_name, help=_help)(lambda: None)


def _version(asked: bool) -> None:
    if asked:
        sys.stdout.write(f"turnpike {VERSION}\n")
        raise typer.Exit


@app.callback()
def options(
    version: bool = typer.Option(
        False, "--version", callback=_version, is_eager=True, help="Show the version and exit."
    ),
    verbose: bool = typer.Option(False, "--verbose", help="Show the traceback of an error, too."),
) -> None:
    """Options before any command."""


def main() -> None:
    """Run the command line."""
    app(prog_name="turnpike")


if __name__ == "__main__":
    main()
