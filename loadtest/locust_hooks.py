"""Adds our options, answer checks, SLO and report to locust's own command and web page."""

from __future__ import annotations

import logging
import math
import socket
import sys
from dataclasses import replace
from typing import Any

import gevent
from locust.env import Environment
from locust.event import Events
from locust.exception import StopTest
from locust.runners import MasterRunner, Runner, WorkerRunner

from turnpike.loadtest.cli.options import OPTIONS, default_text, parse_plan
from turnpike.loadtest.errors import LoadTestError, UsageError
from turnpike.loadtest.generate.load_shape import LoadProfile
from turnpike.loadtest.generate.locust_users import LoadUser, LocustShape, WireUser
from turnpike.loadtest.generate.process_load import ProcessLoad
from turnpike.loadtest.generate.worker import LEDGER, RATE
from turnpike.loadtest.ledger import Ledger, Outcome, now
from turnpike.loadtest.measure.record import Record
from turnpike.loadtest.measure.server_metrics import MetricsPoller
from turnpike.loadtest.measure.summary import failures, make_record
from turnpike.loadtest.plan import LoadPlan
from turnpike.loadtest.report.write_report import prepare_folder, write_report
from turnpike.loadtest.workload.workload import Workload

# options that locust has itself (users, ...), or that only `turnpike loadtest` has (find_capacity, ...)
LOCUST_FIELDS = {"users", "spawn_rate", "duration", "processes", "find_capacity", "step_seconds"}
# locust has a --version of its own
RENAMED_FLAGS = {"version": "--model-version"}
# A visitor of the web page must not choose files on this machine. locust has a field for the shape itself.
HIDDEN_ON_WEB_PAGE = {"api_key", "data", "report", "shape"}

log = logging.getLogger("loadtest")


class BadAnswerError(Exception):
    """An answer that is not good, in locust's own statistics."""


class LocustHooks:
    """Listens to locust's events in one process, which sends, or leads other processes, or both."""

    def __init__(self, events: Events) -> None:
        self._plan: LoadPlan | None = None
        self._process_load: ProcessLoad | None = None
        self._workload: Workload | None = None
        self._ledger = Ledger()
        self._wrong_answer: str | None = None
        self._begun, self._ended = 0.0, math.inf
        self._processes = 1
        self._poller: MetricsPoller | None = None
        events.init_command_line_parser.add_listener(_add_options)
        events.init_command_line_parser.add_listener(_choose_master_port)
        events.init.add_listener(self._on_init)
        events.test_start.add_listener(self._on_test_start)
        events.spawning_complete.add_listener(self._on_spawned)
        events.test_stopping.add_listener(self._on_test_stopping)
        events.test_stop.add_listener(self._on_test_stop)
        events.quitting.add_listener(self._on_quit)
        events.report_to_master.add_listener(self._on_report_to_master)
        events.worker_report.add_listener(self._on_worker_report)

    def _on_init(self, environment: Environment, runner: Runner, **more: Any) -> None:
        self._environment, self._runner = environment, runner
        self._leads, self._sends = not isinstance(runner, WorkerRunner), not isinstance(runner, MasterRunner)
        runner.register_message(RATE, self._on_rate)
        runner.register_message(LEDGER, self._on_ledger)
        options = self._options
        # choose the user classes
        if not self._leads:
            environment.user_classes.append(WireUser)
        elif not options.user_classes and not options.class_picker:
            environment.user_classes[:] = [WireUser]
        # a test that starts without the web page: stop now if its options are invalid
        if self._leads and (options.headless or options.autostart):
            try:
                plan, workload = self._prepare()
                for user in environment.user_classes:
                    if issubclass(user, LoadUser):
                        workload.payloads(plan.wire if user is WireUser else user.wire)
            except LoadTestError as error:
                sys.stderr.write(f"error: {error}\n")
                sys.exit(error.exit_status)
        if self._leads and options.shape not in ("", "constant"):
            environment.shape_class = LocustShape(self._load_profile, ends=True)
            environment.shape_class.runner = runner

    @property
    def _options(self) -> Any:
        return self._environment.parsed_options

    def _parse_plan(self) -> LoadPlan:
        host = self._environment.host
        if not host:
            raise UsageError("--host: expected the server, as http://host:port, got none")
        options = vars(self._options).items()
        # the web page sends an empty text for an option that nobody set
        return parse_plan(
            host, {name: value for name, value in options if name not in LOCUST_FIELDS and value != ""}
        )

    def _prepare(self) -> tuple[LoadPlan, Workload]:
        """The plan and its workload; a LoadTestError if an option is invalid or the server does not fit."""
        plan = self._parse_plan()
        if plan.shape != "constant" and self._leads:
            self._load_profile()
        if plan != self._plan or self._workload is None:
            if plan.report and self._leads:
                prepare_folder(plan.report)
            self._plan, self._workload = plan, Workload(plan)
        return plan, self._workload

    def _load_profile(self) -> LoadProfile:
        options = self._options
        if not options.run_time:
            raise UsageError(
                f"--shape {options.shape}: expected --run-time, the duration of the shape, got none"
            )
        plan = self._parse_plan()
        duration = max(float(options.run_time) - plan.warmup, 1.0)
        users, spawn_rate = options.num_users or 1, options.spawn_rate or 1
        return LoadProfile(plan.shape, users, spawn_rate, plan.warmup, duration)

    def _on_test_start(self, environment: Environment, **more: Any) -> None:
        try:
            plan, workload = self._prepare()
        except LoadTestError as error:
            environment.process_exit_code = error.exit_status
            # the web page shows it among the exceptions
            self._runner.log_exception("loadtest", str(error), "")
            if isinstance(self._runner, MasterRunner) and self._options.headless:
                gevent.spawn(self._runner.quit)
            raise StopTest(str(error)) from None
        self._ledger, self._wrong_answer = Ledger(), None
        self._begun, self._ended = now(), math.inf
        if self._process_load:
            self._process_load.close()
        self._processes = max(1, getattr(self._runner, "worker_count", 1))
        if self._sends:
            index = getattr(self._runner, "worker_index", 0)
            self._process_load = ProcessLoad(plan, workload, f"worker {index}", self._count_in_locust)
            LoadUser.process_load = self._process_load
        if self._leads and plan.report:
            self._poller = MetricsPoller(plan, workload)

    def _on_spawned(self, user_count: int, **more: Any) -> None:
        """Divide the rate of an open loop among the users."""
        if self._leads and self._plan and self._plan.rate and user_count:
            shaped = self._environment.shape_class is not None
            full_count = self._options.num_users if shaped else user_count
            self._runner.send_message(RATE, {"rate": self._plan.rate / (full_count or 1)})

    def _on_rate(self, environment: Environment, msg: Any) -> None:
        if self._process_load:
            self._process_load.rate = msg.data["rate"]

    def _count_in_locust(self, outcome: Outcome, size: int) -> None:
        """Count an outcome in locust's own statistics."""
        self._environment.events.request.fire(
            request_type="POST",
            name=outcome.kind,
            response_time=outcome.latency * 1000,
            response_length=size,
            exception=BadAnswerError(outcome.fault) if outcome.fault else None,
            context={},
        )

    def _on_report_to_master(self, client_id: str, data: dict[str, Any]) -> None:
        if load := self._process_load:
            data["ledger"], data["wrong"] = load.ledger.pop_json(), load.workload.checker.first_wrong

    def _on_worker_report(self, client_id: str, data: dict[str, Any]) -> None:
        if "ledger" in data:
            self._ledger.merge_json(data["ledger"])
            self._wrong_answer = self._wrong_answer or data["wrong"]

    def _on_ledger(self, environment: Environment, msg: Any) -> None:
        self._on_worker_report(msg.node_id, msg.data)

    def _on_test_stopping(self, **more: Any) -> None:
        self._ended = now()

    def _on_test_stop(self, environment: Environment, **more: Any) -> None:
        if self._process_load:
            self._process_load.drain()
            data: dict[str, Any] = {}
            self._on_report_to_master("", data)
            if self._leads:
                self._on_worker_report("", data)
            else:
                self._runner.send_message(LEDGER, data)
        if not self._options.headless:
            self._finish()

    def _on_quit(self, **more: Any) -> None:
        self._finish()

    def _finish(self) -> None:
        """Log the result and write the report, once per test."""
        if not self._leads or not self._begun or self._plan is None or self._workload is None:
            return
        record = self._record(self._plan, self._workload)
        self._begun = 0.0
        reasons = failures(record)
        for reason in reasons:
            log.error(reason)
        if self._plan.slo and self._environment.process_exit_code is None:
            self._environment.process_exit_code = 1 if reasons else 0
        if self._plan.report:
            log.info("report: %s", write_report(self._plan.report, record))

    def _record(self, plan: LoadPlan, workload: Workload) -> Record:
        if self._poller is not None:
            self._poller.stop()
        first = math.ceil(self._begun + plan.warmup)
        # the load ends when the test stops; a master then still waits for the last reports of its workers
        last = max(first, int(min(self._ended, now())))
        options = self._options
        plan = replace(
            plan,
            users=options.num_users or 1,
            spawn_rate=options.spawn_rate or 1,
            duration=max(last - first, 1),
            processes=self._processes,
        )
        return make_record(
            plan,
            workload,
            self._ledger,
            self._poller,
            (first, last),
            begun=self._begun,
            wrong_answer=self._wrong_answer,
        )


def _add_options(parser: Any) -> None:
    """Add our options to locust's; values stay text until a test starts, because the web page sends text."""
    for option in OPTIONS:
        if option.field in LOCUST_FIELDS:
            continue
        flag = RENAMED_FLAGS.get(option.field, option.flag)
        shown = {"include_in_web_ui": option.field not in HIDDEN_ON_WEB_PAGE}
        if option.parse is None:
            parser.add_argument(flag, dest=option.field, action="store_true", help=option.help, **shown)
            continue
        parser.add_argument(
            flag,
            dest=option.field,
            metavar=option.metavar,
            default=default_text(option),
            help=option.help,
            **shown,
        )


def _choose_master_port(parser: Any) -> None:
    """Let the processes of one command connect over a free port, so that several commands can run at once.

    Unchanged if a port is given, or if master and workers are commands of their own.
    """
    ports = {name: parser.get_default(name) for name in ("master_bind_port", "master_port")}
    # without defaults, an option has a value only if it was given
    parser.set_defaults(**dict.fromkeys(ports))
    options, _ = parser.parse_known_args()
    if options.processes and not options.worker:
        port = options.master_bind_port or options.master_port or _free_port()
        ports = dict.fromkeys(ports, port)
    parser.set_defaults(**ports)


def _free_port() -> int:
    with socket.create_server(("", 0)) as listener:
        return int(listener.getsockname()[1])
