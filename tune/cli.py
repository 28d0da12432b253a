"""`turnpike tune`: the settings with which models are served best on this machine."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.markup import escape

from service.config.auto_workers import TUNED_SETTINGS
from tune.errors import StoppedError, UsageError
from tune.interrupt import interruptible
from tune.place import prepare, write
from tune.plan import Plan
from tune.progress import Display
from tune.result import Found
from tune.run import run

app = typer.Typer(add_completion=False)

Models = Annotated[
    Path | None,
    typer.Argument(
        metavar="MODELS", help="A model repository or an .onnx file; left out, the bundled model."
    ),
]
Out = Annotated[
    Path | None,
    typer.Option(
        metavar="DIR",
        help="Write tuned.toml and tuned.html there. [default: the repository, or the current folder]",
    ),
]


@app.command()
def command(
    models: Models = None,
    model: Annotated[
        str | None, typer.Option(metavar="NAME", help="The model to load; needed where there are several.")
    ] = None,
    slo: Annotated[
        str | None, typer.Option(metavar="LIMITS", help="Limits to keep, such as 'p99<50ms, errors<0.1%'.")
    ] = None,
    users: Annotated[
        str, typer.Option(metavar="N,N", help="Numbers of users to be fast for, each alike.")
    ] = "1,16,64",
    rows: Annotated[int, typer.Option(metavar="N", help="Rows of a request.")] = 1,
    wire: Annotated[
        str, typer.Option(metavar="WIRE", help="How requests are written, as for loadtest.")
    ] = "json",
    precision: Annotated[
        str, typer.Option(metavar="TUNED_SETTINGS", help="Precisions to compare; fp32 is the file as it is.")
    ] = "fp32,int8",
    source: Annotated[
        str | None,
        typer.Option(metavar="SOURCE", help="What the model was exported from; int8 is made of it."),
    ] = None,
    minutes: Annotated[float, typer.Option(metavar="NUMBER", help="About how long it may take.")] = 5,
    config: Annotated[
        Path | None, typer.Option(metavar="FILE", help="The settings that serve has otherwise.")
    ] = None,
    out: Out = None,
) -> None:
    """Measure workers, threads, batches and waits on this machine, and write down the best for serve.

    Servers are started and loaded one after another. The exit status is 1 when nothing keeps the SLO.
    """
    asked = Plan(
        models=models,
        model=model,
        slo=slo,
        users=_numbers(users),
        rows=rows,
        wire=wire,
        precisions=tuple(word.strip() for word in precision.split(",")),
        source=source,
        minutes=minutes,
        config=config,
        out=out,
    )
    if status := tune(asked):
        raise typer.Exit(status)


def tune(plan: Plan) -> int:
    """Do it, show it and write it down; gives the exit status."""
    prepare(plan.home)
    console = Console()
    with interruptible() as check, Display(console) as display:
        try:
            found = run(plan, display, check)
        except StoppedError as error:
            raise StoppedError(f"stopped: {display.lost}") from error
    display.result(found)
    settings, page = write(plan.home, found)
    console.print(f"{escape(str(settings))}, {escape(str(page))}", highlight=False, soft_wrap=True)
    console.print(f"to serve so: {escape(use(found, settings))}", highlight=False, soft_wrap=True)
    return 0 if found.decision.kept else 1


def use(found: Found, settings: Path) -> str:
    """How to serve with what was found."""
    home = found.plan.models
    if found.plan.config is not None:
        return f"put its {len(TUNED_SETTINGS)} settings into {found.plan.config}, for what that says of them"
    if home is not None and home == settings.parent:
        return shlex.join(["turnpike", "serve", "--models", str(home), "--workers", "auto"])
    models = ["--models", str(home)] if home is not None and home.is_dir() else []
    return shlex.join(["turnpike", "serve", *models, "--config", str(settings)])


def _numbers(text: str) -> tuple[int, ...]:
    try:
        return tuple(int(part) for part in text.split(","))
    except ValueError:
        raise UsageError(
            f"--users: expected whole numbers with commas, such as 1,16,64, got {text!r}"
        ) from None
