"""The command `turnpike tune`."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.markup import escape

from turnpike.service.config.auto_workers import TUNED_SETTINGS
from turnpike.tune.cli.progress import TuneProgress
from turnpike.tune.errors import StoppedError, UsageError
from turnpike.tune.plan import TunePlan
from turnpike.tune.report.write_report import prepare_folder, write_results
from turnpike.tune.result import TuneResult
from turnpike.tune.run import run_search
from turnpike.tune.trial.child_process import interruptible
from turnpike.tune.trial.trial_log import LOG_FILE

app = typer.Typer(add_completion=False)

Models = Annotated[
    Path | None,
    typer.Argument(
        metavar="MODELS",
        help="Model repository, folder of a run or model, or .onnx file. (default: the bundled model)",
    ),
]
Out = Annotated[
    Path | None,
    typer.Option(
        metavar="DIR",
        help="Folder for tuned.toml and tuned.html. (default: the repository, or the current folder)",
    ),
]


@app.command()
def command(
    models: Models = None,
    model: Annotated[
        str | None, typer.Option(metavar="NAME", help="Model to load; needed if there are several.")
    ] = None,
    slo: Annotated[
        str | None, typer.Option(metavar="LIMITS", help="Limits to keep, such as 'p99<50ms, errors<0.1%'.")
    ] = None,
    users: Annotated[
        str, typer.Option(metavar="N,N", help="Numbers of users to be fast for; each counts equally.")
    ] = "1,16,64",
    rows: Annotated[int, typer.Option(metavar="N", help="Rows per request.")] = 1,
    wire: Annotated[
        str, typer.Option(metavar="WIRE", help="Format of the requests, as for turnpike loadtest.")
    ] = "json",
    precision: Annotated[
        str, typer.Option(metavar="NAMES", help="Precisions to compare; fp32 is the file as it is.")
    ] = "fp32,int8",
    source: Annotated[
        str | None,
        typer.Option(metavar="SOURCE", help="What the model was exported from, to make int8 from it."),
    ] = None,
    minutes: Annotated[float, typer.Option(metavar="NUMBER", help="About how long the search may take.")] = 5,
    config: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Config file of serve, with all other settings.")
    ] = None,
    out: Out = None,
) -> None:
    """Find the settings that serve a model best on this machine, and write them to tuned.toml.

    Starts one server after another, each with other numbers of workers and
    threads, batch sizes and delays, and measures it under load. If a search
    ends early, the same command continues it. The exit status is 1 if no
    settings keep the SLO.
    """
    plan = TunePlan(
        models=models,
        model=model,
        slo=slo,
        users=_parse_ints(users),
        rows=rows,
        wire=wire,
        precisions=tuple(name.strip() for name in precision.split(",")),
        source=source,
        minutes=minutes,
        config=config,
        out=out,
    )
    if status := tune(plan):
        raise typer.Exit(status)


def tune(plan: TunePlan) -> int:
    """Run the search, print the result and write it; returns the exit status."""
    prepare_folder(plan.output_folder)
    console = Console()
    with interruptible() as stop_requested, TuneProgress(console) as progress:
        try:
            result = run_search(plan, progress, stop_requested)
        except StoppedError as error:
            raise StoppedError(f"stopped: {progress.kept_text}") from error
    progress.show_result(result)
    settings, page = write_results(plan.output_folder, result)
    (plan.output_folder / LOG_FILE).unlink(missing_ok=True)
    console.print(f"{escape(str(settings))}, {escape(str(page))}", highlight=False, soft_wrap=True)
    console.print(
        f"to serve with these settings: {escape(usage(result, settings))}", highlight=False, soft_wrap=True
    )
    return 0 if result.decision.keeps_slo else 1


def usage(result: TuneResult, settings: Path) -> str:
    """How to serve with the best settings: a command, or an instruction."""
    models = result.plan.models
    if result.plan.config is not None:
        return f"copy its {len(TUNED_SETTINGS)} settings to {result.plan.config}, and replace the ones there"
    if models is not None and models == settings.parent:
        return shlex.join(["turnpike", "serve", "--models", str(models), "--workers", "auto"])
    options = ["--models", str(models)] if models is not None and models.is_dir() else []
    return shlex.join(["turnpike", "serve", *options, "--config", str(settings)])


def _parse_ints(text: str) -> tuple[int, ...]:
    try:
        return tuple(int(part) for part in text.split(","))
    except ValueError:
        raise UsageError(
            f"--users: expected whole numbers with commas, such as 1,16,64, got {text!r}"
        ) from None
