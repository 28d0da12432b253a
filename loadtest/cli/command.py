"""`turnpike loadtest`: load a server, know its latency."""

from __future__ import annotations

import inspect
import logging
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.markup import escape

from loadtest.cli.options import OPTIONS, Option, default, plan
from loadtest.measure.verdict import failures
from loadtest.plan import Plan

app = typer.Typer(add_completion=False)

INTERRUPTED = 130

Url = Annotated[str, typer.Argument(metavar="URL", help="The server, as http://host:port.")]


def command(url: str, **given: Any) -> None:
    """Load a model of any server of the Open Inference Protocol, and check its answers.

    Users that wait for their answers (closed loop), or a --rate that does not (open loop). The exit status is
    1 when the SLO is missed or an answer is wrong.
    """
    asked = plan(url, given)
    if status := _load(asked):
        raise typer.Exit(status)


def _load(asked: Plan) -> int:
    """Do it, show it and write it down; gives the exit status."""
    # locust goes first: it makes all that comes after it cooperative
    from loadtest.run import run  # isort: skip
    from loadtest.cli.progress import Display
    from loadtest.report.report import prepare, write

    # of what locust says, what it counts as an error is for the user, and its advice is in our notes
    logging.disable(logging.WARNING)
    if asked.report:
        prepare(asked.report)
    console = Console()
    with Display(console) as display:
        record = run(asked, display)
    display.result(record)
    if asked.report:
        console.print(f"report: {escape(str(write(asked.report, record)))}", highlight=False, soft_wrap=True)
    for sentence in (failed := failures(record)):
        console.print(f"[bold red]{escape(sentence)}[/]", highlight=False, soft_wrap=True)
    if record.interrupted:
        return INTERRUPTED
    return 1 if failed else 0


def parameters() -> list[inspect.Parameter]:
    """A parameter for each option, whose words are read and checked elsewhere."""
    found = [inspect.Parameter("url", inspect.Parameter.POSITIONAL_OR_KEYWORD, annotation=Url)]
    for chosen in OPTIONS:
        kind: Any = bool if chosen.read is None else str | None
        found.append(
            inspect.Parameter(
                chosen.field,
                inspect.Parameter.KEYWORD_ONLY,
                default=False if chosen.read is None else None,
                annotation=Annotated[kind, _typed(chosen)],
            )
        )
    return found


def _typed(chosen: Option) -> Any:
    shown = default(chosen)
    words = f"{chosen.words} ({shown})" if shown else chosen.words
    return typer.Option(chosen.name, help=words, metavar=chosen.metavar or None, show_default=False)


# typer reads the options from the signature
command.__signature__ = inspect.Signature(parameters())  # type: ignore[attr-defined]
app.command()(command)
