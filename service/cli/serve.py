"""`turnpike serve`: models and their gates over HTTP."""

from __future__ import annotations

import inspect
import logging
import sys
from pathlib import Path
from typing import Annotated, Any, Literal, get_args, get_origin

import typer

from service.config.settings import KEYWORDS, SECRETS, Settings
from service.config.sources import flag_of, resolve, settings_as_toml

app = typer.Typer(add_completion=False)

ConfigOption = Annotated[
    Path | None,
    typer.Option(
        "--config", metavar="FILE", help="A TOML file of settings, named as the options are, with _."
    ),
]
PrintConfigOption = Annotated[
    bool, typer.Option("--print-config", help="Show every setting and where it came from, and exit.")
]


def command(config: Path | None, print_config: bool, **flags: Any) -> None:
    """Serve the models of a repository; left out, a small one that reads digits.

    Every option is also a variable TURNPIKE_ and its name, and a line of --config's file; a flag goes first,
    then the variable, then the file.
    """
    resolved = resolve({name: value for name, value in flags.items() if value not in (None, [])}, config)
    if print_config:
        sys.stdout.write(settings_as_toml(resolved))
        return
    from service.process.relaunch import relaunch

    if resolved.warning:
        from service.telemetry import log as logs

        logs.configure_logging(resolved.settings.log_level)
        logging.getLogger("turnpike").warning(resolved.warning)
    relaunch(resolved.settings)


def metavar(kind: Any) -> str:
    if get_origin(kind) is Literal:
        return "|".join(get_args(kind))
    named: dict[Any, str] = {int: "N", float: "NUMBER", Path | None: "PATH"}
    return named.get(kind, "TEXT")


def options() -> list[inspect.Parameter]:
    """A parameter for each setting, which says nothing of what is valid: that stands in Settings alone."""
    parameters = [
        inspect.Parameter("config", inspect.Parameter.KEYWORD_ONLY, default=None, annotation=ConfigOption),
        inspect.Parameter(
            "print_config", inspect.Parameter.KEYWORD_ONLY, default=False, annotation=PrintConfigOption
        ),
    ]
    for name, field in Settings.model_fields.items():
        if name in SECRETS:
            continue
        default = field.default
        shown = "" if default in (None, ()) or isinstance(default, bool) else f" [default: {default}]"
        words = (field.description or "") + shown
        if field.annotation is bool:
            kind: Any = bool | None
            option = typer.Option(f"{flag_of(name)}/{flag_of('no_' + name)}", help=words, show_default=False)
        else:
            several = get_origin(field.annotation) is tuple
            kind = list[str] | None if several else str | None
            shape = "|".join(filter(None, (metavar(field.annotation), KEYWORDS.get(name))))
            option = typer.Option(flag_of(name), help=words, metavar=shape, show_default=False)
        parameters.append(
            inspect.Parameter(
                name, inspect.Parameter.KEYWORD_ONLY, default=None, annotation=Annotated[kind, option]
            )
        )
    return parameters


# typer reads the options from the signature
command.__signature__ = inspect.Signature(options())  # type: ignore[attr-defined]
app.command()(command)
