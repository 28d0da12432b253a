"""Settings that are tried, and which of them there is reason to try."""

from __future__ import annotations

from dataclasses import dataclass, fields, replace

from service.config.settings import MAX_WORKERS, Settings

# of rows in a run, beside those that serve has
BATCHES = (16, 32, 64)
# milliseconds that a run waits for more rows
DELAYS = (0.5, 2.0)
USUAL_BATCH = Settings.model_fields["max_batch"].default


@dataclass(frozen=True, slots=True)
class Candidate:
    """Settings of `turnpike serve`, by their names there."""

    workers: int
    threads: int
    max_batch: int
    max_delay_ms: float

    @property
    def name(self) -> str:
        """As short as tables want it: workers x threads, and what else is not as serve has it by itself."""
        batch = f", batch {self.max_batch}" if self.max_batch != USUAL_BATCH else ""
        delay = f", wait {self.max_delay_ms:g} ms" if self.max_delay_ms else ""
        return f"{self.workers} x {self.threads}{batch}{delay}"

    @property
    def words(self) -> list[str]:
        """As they are typed."""
        return [
            word
            for field in fields(self)
            for word in (f"--{field.name.replace('_', '-')}", f"{getattr(self, field.name):g}")
        ]

    def distance(self, other: Candidate) -> int:
        """How many settings differ."""
        return sum(getattr(self, field.name) != getattr(other, field.name) for field in fields(self))


def shapes(base: Candidate, cpus: int) -> list[Candidate]:
    """The base, and one worker with a thread for each CPU, workers in doubles that share them, a worker each.

    Workers with one thread are as many as CPUs: fewer would leave some idle.
    """
    most = min(cpus, MAX_WORKERS)
    doubled = [1 << power for power in range(most.bit_length()) if 1 << power < most]
    pairs = [(workers, cpus // workers) for workers in [*doubled, most]]
    pairs = [(workers, threads) for workers, threads in pairs if threads > 1 or workers == most]
    return unique(base, [replace(base, workers=workers, threads=threads) for workers, threads in pairs])


def around(best: Candidate, most_rows: int) -> list[Candidate]:
    """The best so far, and the same with other batches and waits, where they can matter.

    `most_rows` are in flight at once: a run never has more, whatever it may have, and where there is one
    request at a time it waits for nobody.
    """
    sizes = {min(best.max_batch, most_rows): best.max_batch}
    for size in BATCHES:
        sizes.setdefault(min(size, most_rows), size)
    tried = [replace(best, max_batch=size) for size in sizes.values()]
    delays = (0.0, *DELAYS) if most_rows > 1 else ()
    return unique(best, [*tried, *(replace(best, max_delay_ms=delay) for delay in delays)])


def unique(first: Candidate, others: list[Candidate]) -> list[Candidate]:
    """Each once, the first of them first."""
    return list(dict.fromkeys([first, *others]))
