"""The bench on which candidates are measured: a server of each, loaded by each number of users in turn."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from service.config.cpus import available_cpus
from service.config.settings import Settings
from tune.candidates import Candidate
from tune.interrupt import Check
from tune.load import loaded
from tune.measurements import Figures, Trial
from tune.model_under_test import Subject
from tune.plan import Plan
from tune.server import served

# seconds at the start of a load that the figures leave out: the server finds its pace
WARMUP = 1
# seconds that a server takes to start and end, and a load beside the time that counts
START, BESIDE = 1.5, 0.7 + WARMUP
# CPUs for each process that sends: it asks for more than the others answer of a small model
SENDING = 4
# seconds that count of each load
LEAST, MOST = 2, 20


@dataclass(frozen=True, slots=True)
class Bench:
    """Everything but the candidate, which is alike for all."""

    plan: Plan
    settings: Settings
    subject: Subject
    scratch: Path
    seconds: int
    check: Check
    # hears what is measured now, before each load
    watch: Callable[[Candidate, int], None]

    def measure(self, candidate: Candidate, repository: Path | None = None) -> Trial:
        """Figures for each number of users; a ServeError where it does not start."""
        words = [*self._server(repository or self.subject.repository), *candidate.words]
        with served(words, self.check) as url:
            return tuple(self._load(url, candidate, users) for users in self.plan.users)

    def _load(self, url: str, candidate: Candidate, users: int) -> Figures:
        self.watch(candidate, users)
        asked: dict[str, str | bool] = {
            "url": url,
            "model": self.subject.name,
            "users": str(users),
            "rows": str(self.plan.rows),
            "wire": self.plan.wire,
            "warmup": str(WARMUP),
            "duration": str(self.seconds),
            "processes": str(max(1, min(int(available_cpus()) // SENDING, users))),
            "insecure": url.startswith("https:"),
        }
        if self.plan.slo is not None:
            asked["slo"] = self.plan.slo
        if key := self._key():
            asked["api_key"] = str(key)
        return loaded(asked, self.scratch, self.check)

    def _server(self, repository: Path | None) -> list[str]:
        """The user's settings, but on a port of its own and ending at once."""
        words = ["--host", "127.0.0.1", "--port", "0", "--drain-wait", "0", "--drain-seconds", "1"]
        if self.plan.config is not None:
            words += ["--config", str(self.plan.config)]
        if repository is not None:
            words += ["--models", str(repository)]
        if self.settings.log_level in ("warning", "error"):
            # the line that says where it listens is of a lower level, and so are those of requests
            words += ["--log-level", "info", "--no-access-log"]
        return words

    def _key(self) -> Path | None:
        if not self.settings.api_keys:
            return self.settings.api_keys_file
        kept = self.scratch / "key"
        if not kept.exists():
            kept.touch(mode=0o600)
            kept.write_text(self.settings.api_keys[0], encoding="utf-8")
        return kept


def seconds(minutes: float, trials: int, users: int) -> int:
    """How long each load may be, for so many trials to fit into the time."""
    left = minutes * 60 / max(1, trials) - START
    return min(MOST, max(LEAST, round(left / users - BESIDE)))


def expected(trials: int, users: int, each: int) -> float:
    """Seconds that so many trials will take."""
    return trials * (START + users * (BESIDE + each))
