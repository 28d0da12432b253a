"""The result of a search in sentences."""

from __future__ import annotations

import shlex

from turnpike.tune.result import Alternative, TuneResult
from turnpike.tune.search.candidates import Candidate

TRIED_INTRO = (
    "Each row names workers x threads, and the batch (in rows) and the delay if they differ from the "
    "defaults of serve. The best settings come first. Figures are medians of all measurements."
)
GAIN_PARAGRAPH = (
    "The gain compares good answers per second with those of the settings that serve had before: 2 means "
    "twice as many. It is the geometric mean over the numbers of users, so each number counts equally. At "
    "the end, the previous settings and the best other settings were measured again in turn. The noise is "
    "the difference between measurements of the same settings. A gain smaller than the noise means nothing."
)


def result_sentences(result: TuneResult) -> list[str]:
    """The best settings, whether they keep the SLO, and what the alternatives would gain."""
    alternatives = (_alternative_sentence(result, alternative) for alternative in result.alternatives)
    return [_best_sentence(result), _slo_sentence(result), *alternatives]


def settings_text(candidate: Candidate) -> str:
    """The settings of a candidate in words."""
    workers = f"{candidate.workers} worker{'' if candidate.workers == 1 else 's'}"
    threads = f"{candidate.threads} thread{'' if candidate.threads == 1 else 's'}"
    delay = f"a delay of up to {candidate.max_delay_ms:g} ms" if candidate.max_delay_ms else "no delay"
    return f"{workers} with {threads} each, batches of up to {candidate.max_batch} rows, {delay}"


def users_text(users: int) -> str:
    return f"{users:,} user{'' if users == 1 else 's'}"


def users_texts(users: tuple[int, ...]) -> str:
    """Several numbers of users: 1, 16 and 64 users."""
    *others, last = (f"{count:,}" for count in users)
    return f"{', '.join(others)} and {last} users" if others else users_text(users[0])


def _best_sentence(result: TuneResult) -> str:
    best, noise = result.decision.best, f"{result.decision.noise:.0%}"
    if best == result.base:
        return (
            f"The current settings are best: {settings_text(best)}. No other settings are better by more "
            f"than the noise of the measurements ({noise})."
        )
    times = result.decision.gains[best]
    return (
        f"Best: {settings_text(best)}. With {users_texts(result.plan.users)}, throughput is {times:.2f} "
        f"times that of the current settings ({settings_text(result.base)}); the noise of the measurements "
        f"is {noise}."
    )


def _slo_sentence(result: TuneResult) -> str:
    limits = result.plan.slo or "errors<1%"
    if result.decision.keeps_slo:
        return f"These settings keep {limits}."
    return f"No settings keep {limits}; these come closest."


def _alternative_sentence(result: TuneResult, alternative: Alternative) -> str:
    times = f"the model has {alternative.gain:.2f} times the throughput"
    if alternative.candidate is None:
        speed = f"In {alternative.precision}, with the best settings, {times} of the served file"
    else:
        settings = settings_text(alternative.candidate)
        speed = f"In {alternative.name} with {settings}, {times} of the best settings"
    if alternative.gain * (1 + alternative.noise) < 1:
        return f"{speed}, which is no reason to change."
    if alternative.gain <= 1 + alternative.noise:
        return f"{speed}, which is within the noise ({alternative.noise:.0%})."
    if losses := result.slo_losses(alternative):
        return f"{speed}, but it misses the SLO at {users_texts(losses)}."
    if alternative.candidate is not None:
        return f"{speed}. To use it: {shlex.join(_serve_command(result, alternative.candidate))}"
    command = ["turnpike", "export", result.plan.source or str(result.model.file), "--to"]
    command += [str(result.model.repository or "repository"), "--precision", alternative.precision]
    return f"{speed}. To use it: {shlex.join(command)}"


def _serve_command(result: TuneResult, candidate: Candidate) -> list[str]:
    """The command that serves with these settings, and with the other ones of the search."""
    models = ["--models", str(result.plan.models)] if result.plan.models else []
    config = ["--config", str(result.plan.config)] if result.plan.config else []
    return ["turnpike", "serve", *models, *config, *candidate.options]
