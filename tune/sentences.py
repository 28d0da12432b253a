"""What a search found, in whole sentences."""

from __future__ import annotations

import shlex

from tune.candidates import Candidate
from tune.result import Found, Lower


def sentences(found: Found) -> list[str]:
    """What it comes to: the best, whether that will do, and what fewer bits would bring."""
    return [_best(found), _kept(found), *(_lower(found, lower) for lower in found.lower)]


def settings(candidate: Candidate) -> str:
    """A candidate in words."""
    workers = f"{candidate.workers} worker{'' if candidate.workers == 1 else 's'}"
    threads = f"{candidate.threads} thread{'' if candidate.threads == 1 else 's'}"
    wait = f"waits of up to {candidate.max_delay_ms:g} ms" if candidate.max_delay_ms else "no waits for more"
    return f"{workers} with {threads} each, runs of up to {candidate.max_batch} rows, {wait}"


def crowd(users: int) -> str:
    """So many users."""
    return f"{users:,} user{'' if users == 1 else 's'}"


def crowds(users: tuple[int, ...]) -> str:
    """All numbers of users."""
    *others, last = (f"{one:,}" for one in users)
    return f"{', '.join(others)} and {last} users" if others else crowd(users[0])


def _best(found: Found) -> str:
    best, noise = found.decision.best, f"{found.decision.noise:.0%}"
    if best == found.base:
        return (
            f"Best as it is: {settings(best)}. Nothing that was tried is better by more than the {noise} by "
            "which the same settings differ from themselves."
        )
    times = found.decision.gains[best]
    return (
        f"Best: {settings(best)}. Over {crowds(found.plan.users)} that is {times:.2f} times as much as "
        f"{settings(found.base)}, which serve has without; {noise} is noise."
    )


def _kept(found: Found) -> str:
    limits = found.plan.slo or "errors<1%"
    if found.decision.kept:
        return f"It keeps {limits}."
    return f"Nothing that was tried keeps {limits}; this comes nearest."


def _lower(found: Found, lower: Lower) -> str:
    told = f"In {lower.precision} the model does {lower.gain:.2f} times as much with these settings"
    if not lower.better:
        return f"{told}, which is no reason to change."
    words = ["turnpike", "export", found.plan.source or str(found.subject.file), "--to"]
    words += [str(found.subject.repository or "repository"), "--precision", lower.precision]
    return f"{told}. To have that: {shlex.join(words)}"
