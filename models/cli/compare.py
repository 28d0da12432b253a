"""`turnpike compare`: a depth study of plain, residual and highway networks."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeVar, get_args

import typer
from rich.markdown import Markdown
from rich.markup import escape
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn, TimeRemainingColumn

from turnpike.common.cpus import whole_cpus
from turnpike.models.checks import expect_choice
from turnpike.models.choices import LayerKind
from turnpike.models.cli.output_folder import expect_writable
from turnpike.models.cli.progress import console, download_bar, quiet_console, shell_command
from turnpike.models.errors import ConfigError
from turnpike.models.imports import collector_paused
from turnpike.models.interrupt import INTERRUPTED_EXIT_STATUS, interruptible
from turnpike.models.training.recipe import FIGURE_1_RECIPE, Precision, Schedule

if TYPE_CHECKING:
    from turnpike.models.study.run import RunProgress

app = typer.Typer(add_completion=False)

Number = TypeVar("Number", int, float)

FAMILIES = ",".join(get_args(LayerKind))


@app.command()
def command(
    families: Annotated[str, typer.Option(help="Kinds of layers, separated by commas.")] = FAMILIES,
    depths: Annotated[str, typer.Option(help="Numbers of layers, separated by commas.")] = "10,20,50,100",
    data: Annotated[str, typer.Option(help="Data set, as for `turnpike train`.")] = "digits",
    data_dir: Annotated[
        Path | None,
        typer.Option(envvar="TURNPIKE_DATA", help="Folder with the original files; nothing is downloaded."),
    ] = None,
    epochs: Annotated[
        int, typer.Option("--epochs", "-n", help="Number of passes over the training rows.")
    ] = FIGURE_1_RECIPE.epochs,
    batch: Annotated[int, typer.Option(help="Rows per step.")] = FIGURE_1_RECIPE.batch,
    lr: Annotated[
        str, typer.Option(help="Learning rates, separated by commas; the best by training loss is shown.")
    ] = str(FIGURE_1_RECIPE.lr),
    schedule: Annotated[
        str, typer.Option(help="Schedule of the learning rate: constant, cosine or onecycle.")
    ] = FIGURE_1_RECIPE.schedule,
    clip: Annotated[
        float, typer.Option(help="Upper bound of the gradient's norm; 0 for none.")
    ] = FIGURE_1_RECIPE.clip,
    precision: Annotated[str, typer.Option(help="fp32 or bf16.")] = FIGURE_1_RECIPE.precision,
    width: Annotated[
        int, typer.Option(help="Units of a highway layer; other layers get as many parameters.")
    ] = 50,
    seed: Annotated[int, typer.Option(help="Seed of all random numbers.")] = 0,
    jobs: Annotated[
        int | None, typer.Option(help="Runs at the same time.", show_default="one per core")
    ] = None,
    out: Annotated[Path, typer.Option("--out", "-o", help="Folder of the study.")] = Path("runs/compare"),
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Print errors only.")] = False,
) -> None:
    """Train plain, residual and highway networks of several depths, and compare them in a table and a figure.

    Ctrl-C saves all runs. The same command continues them, and trains nothing twice.
    """
    expect_writable(out)
    with collector_paused():
        from turnpike.models.study.run import FIGURE_FILE, TABLE_FILE, run_study
        from turnpike.models.study.study_plan import Study
    recipe = replace(
        FIGURE_1_RECIPE,
        epochs=epochs,
        batch=batch,
        schedule=_checked_choice("schedule", schedule, get_args(Schedule)),
        clip=clip,
        precision=_checked_choice("precision", precision, get_args(Precision)),
    )
    study = Study(
        families=tuple(
            _checked_choice("families", family, get_args(LayerKind)) for family in _split_list(families)
        ),
        depths=tuple(_parse_number("depths", depth, int) for depth in _split_list(depths)),
        lrs=tuple(_parse_number("lr", rate, float) for rate in _split_list(lr)),
        data=data,
        recipe=recipe,
        seed=seed,
        width=width,
        data_dir=data_dir,
    )
    with quiet_console(quiet=quiet):
        with interruptible() as should_stop, download_bar() as on_download, _RunBars() as bars:
            results = run_study(
                study,
                out,
                jobs=whole_cpus() if jobs is None else jobs,
                on_progress=bars.update,
                should_stop=should_stop,
                on_download=on_download,
            )
        if any(result.state == "unfinished" for result in results):
            continue_command = escape(shell_command(["turnpike", *sys.argv[1:]]))
            console.print(
                f"Stopped and saved in {escape(str(out))}. To continue: [bold]{continue_command}[/]",
                soft_wrap=True,
            )
            raise typer.Exit(INTERRUPTED_EXIT_STATUS)
        console.print(Markdown((out / TABLE_FILE).read_text(encoding="utf-8")))
        files = f"The table is in {out / TABLE_FILE}, the figure in {out / FIGURE_FILE}."
        console.print(files, soft_wrap=True, markup=False)


class _RunBars:
    """A progress bar per run that has started; without a terminal, a line per run that has ended."""

    def __init__(self) -> None:
        self.bars = Progress(
            TextColumn("{task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            TextColumn("loss {task.fields[loss]}"),
            TimeRemainingColumn(),
            console=console,
            disable=not console.is_terminal,
        )
        self.tasks: dict[str, TaskID] = {}
        self.ended: set[str] = set()

    def __enter__(self) -> _RunBars:
        self.bars.start()
        return self

    def __exit__(self, *error: object) -> None:
        self.bars.stop()

    def update(self, progress: RunProgress) -> None:
        loss = "?" if progress.loss is None else f"{progress.loss:.4f}"
        if progress.state == "unfinished" and progress.step == 0:
            return
        if progress.name not in self.tasks:
            self.tasks[progress.name] = self.bars.add_task(progress.name, total=progress.steps, loss=loss)
        self.bars.update(self.tasks[progress.name], completed=progress.step, total=progress.steps, loss=loss)
        if progress.state != "unfinished" and progress.name not in self.ended:
            self.ended.add(progress.name)
            if not console.is_terminal:
                console.print(f"{progress.name}: {progress.state}, loss {loss}", highlight=False)


def _split_list(text: str) -> list[str]:
    return [word.strip() for word in text.split(",") if word.strip()]


def _parse_number(name: str, text: str, kind: type[Number]) -> Number:
    try:
        return kind(text)
    except ValueError as error:
        expected = "whole numbers" if kind is int else "numbers"
        raise ConfigError(f"{name}: expected {expected} separated by commas, got {text!r}") from error


def _checked_choice(name: str, text: str, choices: tuple[Any, ...]) -> Any:
    expect_choice(name, text, choices)
    return text
