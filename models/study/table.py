"""The Markdown table of a study."""

from __future__ import annotations

from collections.abc import Sequence
from math import inf

from turnpike.models.study.baseline import MajorityBaseline
from turnpike.models.study.results import RunResult, RunState
from turnpike.models.study.study_plan import Study

# a network whose loss is below this share of that of chance has fitted the training rows
FITTED_SHARE = 0.1
# a network that has not, and whose loss fell by more than this share in the last epoch, is still learning
LEARNING_FALL = 0.03


def study_table(study: Study, results: Sequence[RunResult], baseline: MajorityBaseline) -> str:
    """Return Markdown: the best run of each family and depth, then all runs if there are more."""
    recipe = study.recipe
    lines = [
        "# Depth, with and without highways",
        "",
        f"Data {study.data}, {recipe.epochs} epochs, batches of {recipe.batch}, {recipe.schedule} schedule, "
        f"highway layers of {study.width} units, other layers wider by the square root of 2, "
        f"seed {study.seed}. "
        f"Chance: accuracy {baseline.accuracy:.2%}, loss {baseline.loss:.3f}.",
        "",
        "The training loss is that of the last epoch. "
        "The accuracies are those of the network with the best validation accuracy.",
        "",
        *_table_lines(best_results(results), baseline),
    ]
    learning = sum(_is_still_learning(result, baseline) for result in best_results(results))
    if learning:
        lines += [
            "",
            f"Too short to judge: {learning} of {len(best_results(results))} networks were still learning. "
            f"They have not fitted the training rows (a loss below {FITTED_SHARE:.0%} of that of chance), "
            f"and the last epoch lowered their loss by more than {LEARNING_FALL:.0%}. Try more epochs, or "
            "another learning rate.",
        ]
    if len(study.lrs) > 1:
        lines += [
            "",
            "Several learning rates were tried; the table shows the one with the lowest final training loss. "
            "All runs:",
            "",
            *_table_lines(results, baseline),
        ]
    return "\n".join(lines) + "\n"


def _table_lines(results: Sequence[RunResult], baseline: MajorityBaseline) -> list[str]:
    headings = (
        "depth",
        "family",
        "learning rate",
        "training loss",
        "valid accuracy",
        "test accuracy",
        "weights",
        "time",
        "",
    )
    rows = [
        (
            str(result.run.depth),
            result.run.family,
            f"{result.run.lr:g}",
            _format(result.loss, ".3g"),
            _format(result.valid_accuracy, ".2%"),
            _format(result.test_accuracy, ".2%"),
            f"{result.parameters:,}",
            _duration(result.seconds),
            _remark(result, baseline),
        )
        for result in results
    ]
    alignment = ["---:" if heading not in ("family", "") else "---" for heading in headings]
    return [f"| {' | '.join(cells)} |" for cells in (headings, alignment, *rows)]


def _format(value: float | None, format_spec: str) -> str:
    return "" if value is None else format(value, format_spec)


def _duration(seconds: float | None) -> str:
    if seconds is None:
        return ""
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes} min {rest:02} s" if minutes else f"{seconds:.1f} s"


def _remark(result: RunResult, baseline: MajorityBaseline) -> str:
    if result.state == "diverged":
        return f"diverged in epoch {result.epoch}"
    if result.state == "unfinished":
        return f"unfinished: {result.step / result.steps:.0%}"
    if _is_still_learning(result, baseline):
        return f"still learning: {result.last_fall:.0%} less loss in the last epoch"
    return "no better than chance" if baseline.accounts_for(result.test_accuracy) else ""


def _is_still_learning(result: RunResult, baseline: MajorityBaseline) -> bool:
    """Whether more epochs would change the verdict on a finished run."""
    if result.state != "finished" or result.loss is None:
        return False
    return result.loss > FITTED_SHARE * baseline.loss and result.last_fall > LEARNING_FALL


def best_results(results: Sequence[RunResult]) -> list[RunResult]:
    """Return, for each family and depth, the run whose learning rate gave the lowest final training loss."""
    states: tuple[RunState, ...] = ("finished", "unfinished", "diverged")

    def rank(result: RunResult) -> tuple[int, float]:
        return states.index(result.state), inf if result.loss is None else result.loss

    best: dict[tuple[int, str], RunResult] = {}
    for result in results:
        key = result.run.depth, result.run.family
        if key not in best or rank(result) < rank(best[key]):
            best[key] = result
    return list(best.values())
