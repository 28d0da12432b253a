"""`turnpike compare`: the depth study of the paper's Figure 1, side by side over the cores."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any, TypeVar, get_args

import typer
from rich.markdown import Markdown
from rich.markup import escape
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn, TimeRemainingColumn

from models.checks import expect_choice
from models.cli.progress import console, download_bar, shell_command
from models.errors import ConfigError
from models.interrupt import INTERRUPTED_EXIT_STATUS, interruptible
from models.networks.feedforward import LayerKind
from models.study import run as compare
from models.study.run import FIGURE_FILE, TABLE_FILE
from models.study.study import Study
from models.training.presets import FIGURE_1_RECIPE
from models.training.recipe import Precision, Schedule
from models.training.train import available_cpus

app = typer.Typer(add_completion=False)

Number = TypeVar("Number", int, float)

FAMILIES = ",".join(get_args(LayerKind))


@app.command()
def command(
    families: Annotated[str, typer.Option(help="Kinds of layers, with commas.")] = FAMILIES,
    depths: Annotated[str, typer.Option(help="Layers in all, with commas.")] = "10,20,50,100",
    data: Annotated[str, typer.Option(help="As for `turnpike train`.")] = "mnist",
    data_dir: Annotated[
        Path | None,
        typer.Option(envvar="TURNPIKE_DATA", help="Read the original files from here; no download."),
    ] = None,
    epochs: Annotated[
        int, typer.Option(help="How often each goes through the data.")
    ] = FIGURE_1_RECIPE.epochs,
    batch: Annotated[int, typer.Option(help="Rows in a step.")] = FIGURE_1_RECIPE.batch,
    lr: Annotated[
        str, typer.Option(help="Learning rates, with commas; the best by training loss is shown.")
    ] = str(FIGURE_1_RECIPE.lr),
    schedule: Annotated[str, typer.Option(help="constant, cosine or onecycle.")] = FIGURE_1_RECIPE.schedule,
    clip: Annotated[
        float, typer.Option(help="Bound on the gradient's norm; 0 for none.")
    ] = FIGURE_1_RECIPE.clip,
    precision: Annotated[str, typer.Option(help="fp32 or bf16.")] = FIGURE_1_RECIPE.precision,
    width: Annotated[int, typer.Option(help="Width of the highway nets; twins get as many parameters.")] = 50,
    seed: Annotated[int, typer.Option(help="Everything random comes from it.")] = 0,
    jobs: Annotated[int | None, typer.Option(help="Runs side by side. [default: one a core]")] = None,
    out: Annotated[Path, typer.Option(help="The study's folder.")] = Path("runs/compare"),
) -> None:
    """Train plain, residual and highway nets of many depths alike, and draw how depth changes them.

    Ctrl-C saves what is at work; the same command goes on, and trains nothing twice.
    """
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
    with interruptible() as stop, download_bar() as download, _ProgressBoard() as board:
        results = compare.run_study(
            study,
            out,
            jobs=available_cpus() if jobs is None else jobs,
            tell=board.tell,
            stop=stop,
            download=download,
        )
    if any(result.state == "unfinished" for result in results):
        again = escape(shell_command(["turnpike", *sys.argv[1:]]))
        where = escape(str(out))
        console.print(f"Stopped, and saved in {where}. To go on: [bold]{again}[/]", soft_wrap=True)
        raise typer.Exit(INTERRUPTED_EXIT_STATUS)
    console.print(Markdown((out / TABLE_FILE).read_text(encoding="utf-8")))
    where = f"The table is in {out / TABLE_FILE}, the figure in {out / FIGURE_FILE}."
    console.print(where, soft_wrap=True, markup=False)


class _ProgressBoard:
    """A bar for each run that has begun on a terminal, a line for each that ends elsewhere."""

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

    def __enter__(self) -> _ProgressBoard:
        self.bars.start()
        return self

    def __exit__(self, *error: object) -> None:
        self.bars.stop()

    def tell(self, progress: compare.RunProgress) -> None:
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
        wanted = "whole numbers" if kind is int else "numbers"
        raise ConfigError(f"{name}: expected {wanted} with commas between, got {text!r}") from error


def _checked_choice(name: str, text: str, choices: tuple[Any, ...]) -> Any:
    expect_choice(name, text, choices)
    return text
