"""Measures one candidate: starts a server with its settings, and loads it with each number of users."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from turnpike.loadtest.report.write_report import JSON_FILE
from turnpike.service.config.settings import Settings
from turnpike.tune.errors import LowerPrecisionError, ServeError
from turnpike.tune.plan import TunePlan
from turnpike.tune.search.candidates import Candidate
from turnpike.tune.search.measurements import LoadFigures, Trial
from turnpike.tune.trial.child_process import ChildProcess, StopRequested, turnpike_command
from turnpike.tune.trial.tuned_model import TunedModel

# seconds that a server may take to load its models
READY_SECONDS = 300.0
_ADDRESS = re.compile(r'turnpike serves (https?://[^\s"]+)')

# seconds at the start of each load that are not measured, until the server has reached a steady state
WARMUP_SECONDS = 1
# seconds that a server takes to start and stop, for the estimate of the whole time
SERVER_SECONDS = 1.5
# seconds that a load takes in addition to the measured time
LOAD_OVERHEAD_SECONDS = 1.5 + WARMUP_SECONDS
# limits of the measured seconds of each load
MIN_LOAD_SECONDS, MAX_LOAD_SECONDS = 2, 20


@contextmanager
def running_server(options: Sequence[str], stop_requested: StopRequested) -> Iterator[str]:
    """Run `turnpike serve` with these options while the block runs; yields its address."""
    with ChildProcess(turnpike_command("serve", *options), stop_requested) as process:
        yield _wait_for_address(process)


def _wait_for_address(process: ChildProcess) -> str:
    deadline = time.monotonic() + READY_SECONDS
    for _ in process.poll():
        if match := _ADDRESS.search(process.stderr_text):
            return match[1]
        if time.monotonic() > deadline:
            raise ServeError(
                f"turnpike serve: expected it to be ready within {READY_SECONDS:g} s, but it was not"
            )
    raise ServeError(f"turnpike serve: {process.error_text}")


def run_load(url: str, options: Sequence[str], folder: Path, stop_requested: StopRequested) -> LoadFigures:
    """Run `turnpike loadtest`.

    Args:
        url: The server.
        options: Options of the command.
        folder: Temporary folder, for the report of the load.
        stop_requested: Returns True once the user wants to stop.
    """
    report = folder / JSON_FILE
    report.unlink(missing_ok=True)
    command = turnpike_command("loadtest", url, *options, "--report", str(folder))
    with ChildProcess(command, stop_requested) as process:
        process.wait()
        # a load that failed, because it missed its limits for example, has a report, too
        if not report.exists():
            raise ServeError(f"turnpike loadtest: {process.error_text}")
    return LoadFigures.from_report(json.loads(report.read_text(encoding="utf-8")))


def lower_precision(
    model: TunedModel, source: str | None, precision: str, scratch: Path, stop_requested: StopRequested
) -> Path:
    """Export the model in a lower precision; returns the repository with it.

    Args:
        model: The model.
        source: The source that it was exported from; None to convert its file.
        precision: Name of the precision.
        scratch: Temporary folder, in which the repository is made.
        stop_requested: Returns True once the user wants to stop.

    Raises:
        LowerPrecisionError: The export fails.
    """
    repository = scratch / precision
    options = ["--to", str(repository), "--name", model.name, "--precision", precision]
    command = turnpike_command("export", source or str(model.file), *options)
    with ChildProcess(command, stop_requested) as process:
        if process.wait():
            hint = "" if source else "; name the checkpoint or module of the export with --source"
            raise LowerPrecisionError(
                f"{precision} was left out, because turnpike export failed: {process.error_text}{hint}"
            )
    return repository


@dataclass(frozen=True, slots=True)
class Bench:
    """Everything that is the same for all candidates."""

    plan: TunePlan
    settings: Settings
    model: TunedModel
    scratch: Path
    load_seconds: int  # measured seconds of each load
    stop_requested: StopRequested
    on_load: Callable[[Candidate, int], None]  # called before each load, with its number of users

    def measure(self, candidate: Candidate, repository: Path | None = None) -> Trial:
        """Load a server with each number of users; raises a ServeError if the server does not start."""
        options = [*self._serve_options(repository or self.model.repository), *candidate.options]
        with running_server(options, self.stop_requested) as url:
            return tuple(self._load(url, candidate, users) for users in self.plan.users)

    def _load(self, url: str, candidate: Candidate, users: int) -> LoadFigures:
        self.on_load(candidate, users)
        # all users start at once
        options = ["--model", self.model.name, "--users", str(users), "--spawn-rate", str(users)]
        options += ["--rows", str(self.plan.rows), "--wire", self.plan.wire]
        options += ["--warmup", str(WARMUP_SECONDS), "--duration", str(self.load_seconds)]
        if url.startswith("https:"):
            # the server is our own, on this machine, and its certificate names another host
            options.append("--insecure")
        if self.plan.slo is not None:
            options += ["--slo", self.plan.slo]
        if key_file := self._key_file():
            options += ["--api-key-file", str(key_file)]
        return run_load(url, options, self.scratch, self.stop_requested)

    def _serve_options(self, repository: Path | None) -> list[str]:
        """The user's settings, but on a free port and with an immediate stop."""
        options = ["--host", "127.0.0.1", "--port", "0", "--drain-wait", "0", "--drain-seconds", "1"]
        if self.plan.config is not None:
            options += ["--config", str(self.plan.config)]
        if repository is not None:
            options += ["--models", str(repository)]
        if self.settings.log_level in ("warning", "error"):
            # The address is logged at level info, which has to be on. The access log has the same level, and
            # the user's settings turn it off.
            options += ["--log-level", "info", "--no-access-log"]
        return options

    def _key_file(self) -> Path | None:
        """A file with an API key of the server, if it needs one."""
        if not self.settings.api_keys:
            return self.settings.api_keys_file
        file = self.scratch / "key"
        if not file.exists():
            file.touch(mode=0o600)
            file.write_text(self.settings.api_keys[0], encoding="utf-8")
        return file


def seconds_per_load(minutes: float, trials: int, loads_per_trial: int) -> int:
    """Measured seconds of each load, so that all trials fit into the time."""
    per_trial = minutes * 60 / max(1, trials) - SERVER_SECONDS
    seconds = round(per_trial / loads_per_trial - LOAD_OVERHEAD_SECONDS)
    return min(MAX_LOAD_SECONDS, max(MIN_LOAD_SECONDS, seconds))


def estimate_seconds(trials: int, loads_per_trial: int, load_seconds: int) -> float:
    """Seconds that this many trials take."""
    return trials * (SERVER_SECONDS + loads_per_trial * (LOAD_OVERHEAD_SECONDS + load_seconds))
