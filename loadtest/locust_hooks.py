"""What makes a load test of ours of locust's own command: options, checked answers, SLO and report."""

from __future__ import annotations

import logging
import math
import sys
from dataclasses import replace
from typing import Any

import gevent
from locust.env import Environment
from locust.event import Events
from locust.exception import StopTest
from locust.runners import MasterRunner, Runner, WorkerRunner

from loadtest.cli.options import OPTIONS, default, plan
from loadtest.errors import LoadTestError, UsageError
from loadtest.generate.process_load import Station
from loadtest.generate.sender import now
from loadtest.generate.shapes import Course, FormShape
from loadtest.generate.users import ByWire, LoadUser
from loadtest.generate.worker import LEDGER, RATE
from loadtest.ledger import Ledger, Outcome
from loadtest.measure.observer import Observer
from loadtest.measure.record import Record
from loadtest.measure.result import result
from loadtest.measure.verdict import failures
from loadtest.plan import Plan
from loadtest.report.report import prepare, write
from loadtest.workload.workload import Load

# what locust has options of its own for, and what only our command does
THEIRS = {"users", "spawn_rate", "duration", "processes", "find_capacity", "step_seconds"}
RENAMED = {"version": "--model-version"}
# nobody at a web page chooses files of this machine
NOT_ON_THE_PAGE = {"api_key", "data", "report", "shape"}

log = logging.getLogger("loadtest")


class FaultError(Exception):
    """An answer that was not good, as locust counts it."""


class Hooks:
    """One process of locust: it sends, or leads others that do, or both."""

    def __init__(self, events: Events) -> None:
        self._plan: Plan | None = None
        self._station: Station | None = None
        self._load: Load | None = None
        self._ledger = Ledger()
        self._wrong: str | None = None
        self._begun, self._ended = 0.0, math.inf
        self._processes = 1
        self._observer: Observer | None = None
        events.init_command_line_parser.add_listener(_add_options)
        events.init.add_listener(self._init)
        events.test_start.add_listener(self._start)
        events.spawning_complete.add_listener(self._spawned)
        events.test_stopping.add_listener(self._stopping)
        events.test_stop.add_listener(self._stop)
        events.quitting.add_listener(self._quit)
        events.report_to_master.add_listener(self._report)
        events.worker_report.add_listener(self._hear)

    def _init(self, environment: Environment, runner: Runner, **more: Any) -> None:
        self._environment, self._runner = environment, runner
        self._leads, self._sends = not isinstance(runner, WorkerRunner), not isinstance(runner, MasterRunner)
        runner.register_message(RATE, self._set_rate)
        runner.register_message(LEDGER, self._hear_ledger)
        options = self._options
        if not self._leads:
            environment.user_classes.append(ByWire)
        elif not options.user_classes and not options.class_picker:
            environment.user_classes[:] = [ByWire]
        if self._leads and (options.headless or options.autostart):
            try:
                asked, load = self._ready()
                for user in environment.user_classes:
                    if issubclass(user, LoadUser):
                        load.of(asked.wire if user is ByWire else user.wire)
            except LoadTestError as error:
                sys.stderr.write(f"error: {error}\n")
                sys.exit(error.exit_status)
        if self._leads and options.shape not in ("", "constant"):
            environment.shape_class = FormShape(self._course, ends=True)
            environment.shape_class.runner = runner

    @property
    def _options(self) -> Any:
        return self._environment.parsed_options

    def _asked(self) -> Plan:
        host = self._environment.host
        if not host:
            raise UsageError("--host: expected the server, as http://host:port, got none")
        given = vars(self._options).items()
        # at a web page, nothing is what an option holds that nobody set
        return plan(host, {name: value for name, value in given if name not in THEIRS and value != ""})

    def _ready(self) -> tuple[Plan, Load]:
        """The plan, and its model found; a LoadTestError where that cannot be."""
        asked = self._asked()
        if asked.shape != "constant" and self._leads:
            self._course()
        if asked != self._plan or self._load is None:
            if asked.report and self._leads:
                prepare(asked.report)
            self._plan, self._load = asked, Load(asked)
        return asked, self._load

    def _course(self) -> Course:
        options = self._options
        if not options.run_time:
            raise UsageError(f"--shape {options.shape}: expected --run-time, over which it extends, got none")
        asked = self._asked()
        duration = max(float(options.run_time) - asked.warmup, 1.0)
        return Course(asked.shape, options.num_users or 1, options.spawn_rate or 1, asked.warmup, duration)

    def _start(self, environment: Environment, **more: Any) -> None:
        try:
            asked, load = self._ready()
        except LoadTestError as error:
            environment.process_exit_code = error.exit_status
            # the page shows it among exceptions
            self._runner.log_exception("loadtest", str(error), "")
            if isinstance(self._runner, MasterRunner) and self._options.headless:
                gevent.spawn(self._runner.quit)
            raise StopTest(str(error)) from None
        self._ledger, self._wrong = Ledger(), None
        self._begun, self._ended = now(), math.inf
        self._processes = max(1, getattr(self._runner, "worker_count", 1))
        if self._sends:
            index = getattr(self._runner, "worker_index", 0)
            self._station = LoadUser.station = Station(asked, load, f"worker {index}", self._count)
            self._ledger = self._station.ledger
        if self._leads and asked.report:
            self._observer = Observer(asked, load)

    def _spawned(self, user_count: int, **more: Any) -> None:
        """Share the rate out among the users, as many as there are."""
        if self._leads and self._plan and self._plan.rate and user_count:
            shaped = self._environment.shape_class is not None
            whole = self._options.num_users if shaped else user_count
            self._runner.send_message(RATE, {"rate": self._plan.rate / (whole or 1)})

    def _set_rate(self, environment: Environment, msg: Any) -> None:
        if self._station:
            self._station.rate = msg.data["rate"]

    def _count(self, outcome: Outcome, size: int) -> None:
        """Have it in locust's own statistics, too."""
        self._environment.events.request.fire(
            request_type="POST",
            name=outcome.kind,
            response_time=outcome.latency * 1000,
            response_length=size,
            exception=FaultError(outcome.fault) if outcome.fault else None,
            context={},
        )

    def _report(self, client_id: str, data: dict[str, Any]) -> None:
        if self._station:
            data["ledger"], data["wrong"] = self._station.ledger.tell(), self._station.load.judge.first_wrong

    def _hear(self, client_id: str, data: dict[str, Any]) -> None:
        if "ledger" in data:
            self._ledger.hear(data["ledger"])
            self._wrong = self._wrong or data["wrong"]

    def _hear_ledger(self, environment: Environment, msg: Any) -> None:
        self._hear(msg.node_id, msg.data)

    def _stopping(self, **more: Any) -> None:
        self._ended = now()
        if self._station:
            self._station.end()

    def _stop(self, environment: Environment, **more: Any) -> None:
        if self._station:
            self._station.settle()
            self._wrong = self._station.load.judge.first_wrong
            if not self._leads:
                data: dict[str, Any] = {}
                self._report("", data)
                self._runner.send_message(LEDGER, data)
        if not self._options.headless:
            self._finish()

    def _quit(self, **more: Any) -> None:
        self._finish()

    def _finish(self) -> None:
        """Say what was found, once a test."""
        if not self._leads or not self._begun or self._plan is None or self._load is None:
            return
        record = self._record(self._plan, self._load)
        self._begun = 0.0
        found = failures(record)
        for sentence in found:
            log.error(sentence)
        if self._plan.slo and self._environment.process_exit_code is None:
            self._environment.process_exit_code = 1 if found else 0
        if self._plan.report:
            log.info("report: %s", write(self._plan.report, record))

    def _record(self, asked: Plan, load: Load) -> Record:
        if self._observer is not None:
            self._observer.stop()
        first = math.ceil(self._begun + asked.warmup)
        # a master waits for its workers' last words, and nothing is sent meanwhile
        last = max(first, int(min(self._ended, now())))
        options = self._options
        asked = replace(
            asked,
            users=options.num_users or 1,
            spawn_rate=options.spawn_rate or 1,
            duration=max(last - first, 1),
            processes=self._processes,
        )
        return result(
            asked, load, self._ledger, self._observer, (first, last), begun=self._begun, wrong=self._wrong
        )


def _add_options(parser: Any) -> None:
    """Ours beside locust's; values are words until a test starts, since a web page gives words."""
    for chosen in OPTIONS:
        if chosen.field in THEIRS:
            continue
        name = RENAMED.get(chosen.field, chosen.name)
        shown = {"include_in_web_ui": chosen.field not in NOT_ON_THE_PAGE}
        if chosen.read is None:
            parser.add_argument(name, dest=chosen.field, action="store_true", help=chosen.words, **shown)
            continue
        parser.add_argument(
            name,
            dest=chosen.field,
            metavar=chosen.metavar,
            default=default(chosen),
            help=chosen.words,
            **shown,
        )
