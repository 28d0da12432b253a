"""Candidates, which are settings of `turnpike serve` to try; and the sets of them that a search tries."""

from __future__ import annotations

from dataclasses import dataclass, fields, replace

from turnpike.service.config.settings import MAX_WORKERS, Settings

# rows per run to try, besides the current setting
BATCH_SIZES = (16, 32, 64)
# milliseconds that a run waits for more rows, to try
DELAYS_MS = (0.5, 2.0)
# precisions of a model in fp32 on OpenVINO
OPENVINO_PRECISIONS = ("fp32", "bf16")
DEFAULT_MAX_BATCH = Settings.model_fields["max_batch"].default


@dataclass(frozen=True, slots=True)
class Candidate:
    """Settings of `turnpike serve`; the fields have the names of the settings, except for `openvino`."""

    workers: int
    threads: int
    max_batch: int
    max_delay_ms: float
    openvino: str | None = None  # the precision on OpenVINO; None for the device of the other settings

    @property
    def name(self) -> str:
        """Short name for tables: workers x threads, and other settings that differ from defaults."""
        openvino = f", {self.openvino} on OpenVINO" if self.openvino else ""
        batch = f", batch {self.max_batch}" if self.max_batch != DEFAULT_MAX_BATCH else ""
        delay = f", delay {self.max_delay_ms:g} ms" if self.max_delay_ms else ""
        return f"{self.workers} x {self.threads}{batch}{delay}{openvino}"

    @property
    def options(self) -> list[str]:
        """The command-line options that set these settings."""
        numbers = [
            word
            for field in fields(self)
            if field.name != "openvino"
            for word in (f"--{field.name.replace('_', '-')}", f"{getattr(self, field.name):g}")
        ]
        return [*numbers, "--device", "openvino", "--precision", self.openvino] if self.openvino else numbers

    def distance(self, other: Candidate) -> int:
        """Number of settings that differ."""
        return sum(getattr(self, field.name) != getattr(other, field.name) for field in fields(self))


def cpu_splits(base: Candidate, cpus: int) -> list[Candidate]:
    """The base, then ways to split the CPUs among workers.

    These are 1, 2, 4, ... workers that share the CPUs as threads, and a worker per CPU. Fewer workers with
    one thread each would leave CPUs idle, so they are left out.
    """
    most = min(cpus, MAX_WORKERS)
    powers = [1 << power for power in range(most.bit_length()) if 1 << power < most]
    pairs = [(workers, cpus // workers) for workers in [*powers, most]]
    pairs = [(workers, threads) for workers, threads in pairs if threads > 1 or workers == most]
    splits = [replace(base, workers=workers, threads=threads) for workers, threads in pairs]
    return without_repeats(base, splits)


def batch_variants(best: Candidate, max_rows: int) -> list[Candidate]:
    """The best candidate, then the same with other batch sizes and delays, as far as they can matter.

    At most `max_rows` rows are in flight at the same time, so larger batches never fill. With a single row,
    there is nothing to wait for.
    """
    sizes = {min(best.max_batch, max_rows): best.max_batch}
    for size in BATCH_SIZES:
        sizes.setdefault(min(size, max_rows), size)
    batches = [replace(best, max_batch=size) for size in sizes.values()]
    delays = (0.0, *DELAYS_MS) if max_rows > 1 else ()
    return without_repeats(best, [*batches, *(replace(best, max_delay_ms=delay) for delay in delays)])


def openvino_splits(base: Candidate, best: Candidate, cpus: int) -> list[Candidate]:
    """The best candidate on OpenVINO, in each precision and for each way to split the CPUs.

    Every split is tried again, because OpenVINO may need another one than the CPU provider.
    """
    return [
        replace(best, workers=split.workers, threads=split.threads, openvino=precision)
        for precision in OPENVINO_PRECISIONS
        for split in cpu_splits(base, cpus)
    ]


def without_repeats(first: Candidate, others: list[Candidate]) -> list[Candidate]:
    """All candidates once, `first` at the beginning."""
    return list(dict.fromkeys([first, *others]))
