"""A process that only sends: nothing that draws, scrapes or sums up delays its requests."""

from __future__ import annotations

import gc
import os
import signal
import traceback
from typing import Any, NoReturn

import gevent
import locust.runners
from gevent.os import nb_read
from locust.env import Environment

from loadtest.generate.process_load import Station, cpu
from loadtest.generate.sender import now
from loadtest.generate.users import ByWire, LoadUser
from loadtest.plan import Plan
from loadtest.workload.workload import Load

# what the two sides call their messages
RATE, SETTLE, SETTLED, LEDGER = "turnpike_rate", "turnpike_settle", "turnpike_settled", "turnpike_ledger"
# digits of a port, as they are sent
DIGITS = 5
# use of the processor is not told for shorter times
BUSY_SECONDS = 0.9


def work(plan: Plan, load: Load, name: str, lifeline: int) -> NoReturn:
    """Be told the master's port through the lifeline, and work for it until it says so, or is gone."""
    status = 1
    try:
        # they may reach all processes of a terminal; the one that leads ends the others
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, signal.SIG_IGN)
        if port := os.read(lifeline, DIGITS):
            gevent.spawn(_end_with, lifeline)
            _serve(plan, load, name, int(port))
        status = 0
    except BaseException:  # whatever it is, this process must not go on as the one it was forked from
        traceback.print_exc()
    finally:
        os._exit(status)


def _serve(plan: Plan, load: Load, name: str, port: int) -> None:
    # what is there now stays; the collector need not look at it
    gc.collect()
    gc.freeze()
    locust.runners.WORKER_REPORT_INTERVAL = 1.0
    environment = Environment(user_classes=[ByWire], host=plan.url)
    station = LoadUser.station = Station(plan, load, name)
    if plan.open_loop:
        station.sender.connections.open(plan.users // plan.processes)
    runner = environment.create_worker_runner("127.0.0.1", port)
    begun, used = now(), cpu()

    def report(client_id: str, data: dict[str, Any]) -> None:
        nonlocal begun, used
        data["ledger"], data["wrong"], data["busy"] = station.ledger.tell(), load.judge.first_wrong, None
        ended, spent = now(), cpu()
        if ended - begun >= BUSY_SECONDS:
            data["busy"] = [ended, (spent - used) / (ended - begun)]
            begun, used = ended, spent

    def rate(environment: Environment, msg: Any) -> None:
        station.rate = msg.data["rate"]

    def settle(environment: Environment, msg: Any) -> None:
        station.settle()
        runner._send_stats()
        runner.send_message(SETTLED, msg.data)

    environment.events.report_to_master.add_listener(report)
    runner.register_message(RATE, rate)
    runner.register_message(SETTLE, settle, concurrent=True)
    runner.greenlet.join()


def _end_with(lifeline: int) -> None:
    """End when the other end of the lifeline is gone, whatever became of the process that held it."""
    os.set_blocking(lifeline, False)
    while nb_read(lifeline, 1):
        pass
    os._exit(1)
