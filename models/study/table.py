"""The table of a study."""

from __future__ import annotations

from collections.abc import Sequence
from math import inf

from models.study.baseline import MajorityBaseline
from models.study.results import RunResult, RunState
from models.study.study import Study


def study_table(study: Study, results: Sequence[RunResult], chance: MajorityBaseline) -> str:
    """The study in Markdown: the best run of each family and depth, and then, if there are more, all."""
    recipe = study.recipe
    lines = [
        "# Depth, with and without highways",
        "",
        f"Data {study.data}, {recipe.epochs} epochs, batches of {recipe.batch}, {recipe.schedule} schedule, "
        f"highway layers {study.width} wide, their twins wider by the square root of 2, seed {study.seed}. "
        f"Chance: accuracy {chance.accuracy:.2%}, loss {chance.loss:.3f}.",
        "",
        "The training loss is that of the last epoch; the accuracies are of the best network by validation.",
        "",
        *_rows(best_results(results), chance),
    ]
    if len(study.lrs) > 1:
        lines += [
            "",
            "Of several learning rates, the one whose training loss ended lowest. All of them:",
            "",
            *_rows(results, chance),
        ]
    return "\n".join(lines) + "\n"


def _rows(results: Sequence[RunResult], chance: MajorityBaseline) -> list[str]:
    heads = (
        "depth",
        "family",
        "learning rate",
        "training loss",
        "validation accuracy",
        "test accuracy",
        "parameters",
        "time",
        "",
    )
    rows = [
        (
            str(result.cell.depth),
            result.cell.family,
            f"{result.cell.lr:g}",
            _format(result.loss, ".3g"),
            _format(result.valid_accuracy, ".2%"),
            _format(result.test_accuracy, ".2%"),
            f"{result.parameters:,}",
            _duration(result.seconds),
            _remark(result, chance),
        )
        for result in results
    ]
    sides = ["---:" if head not in ("family", "") else "---" for head in heads]
    return [f"| {' | '.join(cells)} |" for cells in (heads, sides, *rows)]


def _format(value: float | None, form: str) -> str:
    return "" if value is None else format(value, form)


def _duration(seconds: float | None) -> str:
    if seconds is None:
        return ""
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes} min {rest:02} s" if minutes else f"{seconds:.1f} s"


def _remark(result: RunResult, chance: MajorityBaseline) -> str:
    if result.state == "diverged":
        return f"diverged in epoch {result.epoch}"
    if result.state == "unfinished":
        return f"unfinished: {result.step / result.steps:.0%}"
    return "no better than chance" if chance.explains(result.test_accuracy) else ""


def best_results(results: Sequence[RunResult]) -> list[RunResult]:
    """Of each family at each depth the run, among all learning rates, whose training loss ended lowest."""
    states: tuple[RunState, ...] = ("finished", "unfinished", "diverged")

    def rank(result: RunResult) -> tuple[int, float]:
        return states.index(result.state), inf if result.loss is None else result.loss

    chosen: dict[tuple[int, str], RunResult] = {}
    for result in results:
        place = result.cell.depth, result.cell.family
        if place not in chosen or rank(result) < rank(chosen[place]):
            chosen[place] = result
    return list(chosen.values())
