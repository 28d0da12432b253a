"""The page of a search, `tuned.html`."""

from __future__ import annotations

from collections.abc import Iterator

from turnpike.reporting import number_format as fmt
from turnpike.reporting.markup import Markup, Part, tag
from turnpike.reporting.page import (
    badge,
    build_page,
    chart_figure,
    notes,
    section,
    side_by_side,
    summary,
    table,
    tile,
    tiles,
    verdict,
)
from turnpike.tune.report.charts import make_charts
from turnpike.tune.report.sentences import GAIN_PARAGRAPH, TRIED_INTRO, result_sentences, users_text
from turnpike.tune.result import TuneResult
from turnpike.tune.search.measurements import LoadFigures


def render_html(result: TuneResult) -> str:
    """The text of `tuned.html`."""
    title = f"{result.model.name} tuned"
    explanation = section(
        "How to read this",
        None,
        tag("p", GAIN_PARAGRAPH),
        tag("footer", "The settings are in ", tag("code", "tuned.toml"), ".", class_="quiet"),
    )
    return build_page(title, _summary(title, result), _candidates(result), _alternatives(result), explanation)


def _summary(title: str, result: TuneResult) -> Markup:
    best, machine = result.decision.best, result.machine
    if not result.decision.keeps_slo:
        outcome = badge("SLO missed", "alarm")
    else:
        outcome = badge("SLO kept", "ok") if result.plan.slo else badge("no SLO was given", "off")
    versions = ", ".join(f"{name} {version}" for name, version in result.versions.items())
    conditions = (
        f"{result.ended:%Y-%m-%d %H:%M UTC}, on {fmt.number(machine['cpus'])} CPUs of {machine['cpu']}, "
        f"device {machine['device']}, {versions}. Each figure was measured for {result.load_seconds} s in a "
        f"closed loop, with {fmt.rows([result.plan.rows])} per request (wire format {result.plan.wire}). "
        "Users and server shared the machine."
    )
    return summary(
        title,
        [outcome],
        tag("p", conditions, class_="quiet"),
        *(tag("p", sentence) for sentence in result_sentences(result)),
        notes(result.notes, "watch"),
        tiles(
            tile(str(best.workers), "workers"),
            tile(str(best.threads), "threads"),
            tile(str(best.max_batch), "max batch, rows"),
            tile(f"{best.max_delay_ms:g} ms", "max delay"),
            tile(f"{result.decision.gains[best]:.2f}", "times the previous throughput"),
            tile(fmt.share(result.decision.noise), "noise"),
        ),
    )


def _candidates(result: TuneResult) -> Markup:
    """Charts and a table of everything that was tried."""
    head = ["workers x threads", "gain", "trials"]
    for users in result.plan.users:
        head += [users_text(users), "p50", "p99"]
    rows: list[list[Part]] = [
        [
            tried.candidate.name,
            f"{tried.gain:.2f}",
            tried.trial_count,
            *(cell for figures in tried.trial for cell in _cells(figures, figures.p50, figures.p99)),
            verdict(kept=tried.keeps_slo),
        ]
        for tried in result.candidates
    ]
    tried_candidates = [tried.candidate for tried in result.candidates]
    return section(
        "All settings that were tried",
        TRIED_INTRO,
        side_by_side(*map(chart_figure, make_charts(result))),
        table([*head, "verdict"], rows, (0, len(head)), bold=tried_candidates.index(result.decision.best)),
    )


def _alternatives(result: TuneResult) -> Markup | None:
    if not result.alternatives:
        return None
    head = ["precision", "gain"]
    for users in result.plan.users:
        head += [users_text(users), "p99"]
    rows = [
        [
            alternative.name,
            f"{alternative.gain:.2f}",
            *(cell for figures in alternative.trial for cell in _cells(figures, figures.p99)),
        ]
        for alternative in result.alternatives
    ]
    return section("Other precisions and OpenVINO", None, table(head, rows, (0,)))


def _cells(figures: LoadFigures, *times: float | None) -> Iterator[str]:
    """The rate with a number of users, and these times."""
    yield f"{fmt.number(figures.rate)}/s"
    yield from map(fmt.seconds, times)
