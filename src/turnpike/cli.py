"""The command line: finds the module of a command when it is called, and prints an error as one line.

So `turnpike serve` never imports torch, and `turnpike --help` imports no large library.
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
from typing import Any

import typer
from typer.core import TyperGroup

from turnpike.commands import COMMANDS, VARIANTS, command_of, missing_extra
from turnpike.common.distribution import VERSION, missing_library


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
        if name := command_of(args):
            self.called = name
            self.commands[args[0]] = load_command(name)
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
            library = missing_library(error) if isinstance(error, ImportError) and self.called else None
            message, status = (missing_extra(self.called, library), 1) if library else describe_error(error)
            from rich.console import Console
            from rich.markup import escape

            console = Console(stderr=True, soft_wrap=True)
            console.print(f"[bold red]error:[/] {escape(message)}", highlight=False)
            raise typer.Exit(status) from error


def load_command(name: str) -> Any:
    """Import the module of a command, which imports the large libraries when it is called."""
    module = (COMMANDS.get(name) or VARIANTS[name]).module
    command = typer.main.get_command(importlib.import_module(module).app)
    command.name = name.partition(" ")[0]
    return command


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

for _name, _command in COMMANDS.items():
    # a placeholder for the list of commands; `resolve_command` replaces it
    app.command(_name, help=_command.help)(lambda: None)


def _print_version(requested: bool) -> None:
    if requested:
        sys.stdout.write(f"turnpike {VERSION}\n")
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
