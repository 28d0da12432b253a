"""The command `turnpike loadtest`."""

from __future__ import annotations

import inspect
import logging
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.markup import escape

from turnpike.loadtest.cli.options import OPTIONS, Option, default_text, parse_plan
from turnpike.loadtest.plan import LoadPlan

app = typer.Typer(add_completion=False)

# exit status of a process that SIGINT ended, as shells report it
INTERRUPTED = 130

Url = Annotated[str, typer.Argument(metavar="URL", help="The server, as http://host:port.")]


def command(url: str, **options: Any) -> None:
    """Load a model server, check every answer, and measure latency and throughput.

    Works with any server of the Open Inference Protocol. By default, users
    wait for an answer before they send the next request (closed loop). With
    --rate, requests are sent on a schedule (open loop). The exit status is 1
    if the SLO is missed or an answer is wrong.
    """
    if status := _run(parse_plan(url, options)):
        raise typer.Exit(status)


def _run(plan: LoadPlan) -> int:
    """Run the test, print the results and write the report; returns the exit status."""
    # locust comes first: it makes the modules that are imported after it cooperative
    from turnpike.loadtest.run import run_load_test  # isort: skip
    from turnpike.loadtest.cli.progress import LoadProgress
    from turnpike.loadtest.measure.summary import failures
    from turnpike.loadtest.report.write_report import prepare_folder, write_report

    # hide locust's own messages: it logs our errors a second time, and our notes replace its advice
    logging.disable(logging.WARNING)
    if plan.report:
        prepare_folder(plan.report)
    console = Console()
    with LoadProgress(console) as progress:
        record = run_load_test(plan, progress)
    progress.show_result(record)
    if plan.report:
        page = write_report(plan.report, record)
        console.print(f"report: {escape(str(page))}", highlight=False, soft_wrap=True)
    reasons = failures(record)
    for reason in reasons:
        console.print(f"[bold red]{escape(reason)}[/]", highlight=False, soft_wrap=True)
    if record.interrupted:
        return INTERRUPTED
    return 1 if reasons else 0


def parameters() -> list[inspect.Parameter]:
    """A parameter of `command` for each option; values are text, which `parse_plan` checks."""
    result = [inspect.Parameter("url", inspect.Parameter.POSITIONAL_OR_KEYWORD, annotation=Url)]
    for option in OPTIONS:
        kind: Any = bool if option.parse is None else str | None
        result.append(
            inspect.Parameter(
                option.field,
                inspect.Parameter.KEYWORD_ONLY,
                default=False if option.parse is None else None,
                annotation=Annotated[kind, _typer_option(option)],
            )
        )
    return result


def _typer_option(option: Option) -> Any:
    default = default_text(option)
    help_text = f"{option.help} (default: {default})" if default else option.help
    return typer.Option(option.flag, help=help_text, metavar=option.metavar or None, show_default=False)


# typer reads the options from the signature
command.__signature__ = inspect.Signature(parameters())  # type: ignore[attr-defined]
app.command()(command)
