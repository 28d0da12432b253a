"""Divides the CPUs that this process may use among workers and their threads."""

from __future__ import annotations

from turnpike.common.cpus import whole_cpus
from turnpike.service.config.settings import Settings

# bytes of one weight above which splitting its product over threads gains more than waking them costs
LARGE_WEIGHT_BYTES = 2 << 20
# CPUs for each worker of a model with large weights
CPUS_PER_WIDE_WORKER = 4


def threads_per_worker(settings: Settings) -> int:
    """Threads for the runs of one worker: `--threads`, or an equal share of the CPUs."""
    return settings.threads or max(1, whole_cpus() // settings.workers)


def default_workers(allowed_cpus: float, weight_size: int) -> int:
    """The number of workers to use if nothing was measured; `weight_size` is the bytes of a typical weight.

    A model with small weights spends its time on requests, which one process handles on one CPU, and its
    threads wait for each other at every product. With weights of up to 1 MB (fp32 or int8), two workers on
    two CPUs answer 1.0 to 2 times as many requests as one worker with two threads, for 1 user and for 64.

    A model with large weights spends its time in products, which threads share. With weights of 2.5 MB, two
    workers answer 0.7 to 0.8 times as many requests for 1 and for 16 users, and as many for 64. Threads gain
    less the more there are, so there is one worker for every four CPUs. `turnpike tune` measures all this.
    """
    cpus = max(1, int(allowed_cpus))
    return max(1, cpus // CPUS_PER_WIDE_WORKER) if weight_size > LARGE_WEIGHT_BYTES else cpus
