"""What the server says of itself, asked for once a second beside a load."""

from __future__ import annotations

import gevent

from loadtest.measure.scrape import Scrape, Scraper
from loadtest.plan import Plan
from loadtest.workload.http_client import Fetch
from loadtest.workload.workload import Load

# an answer that takes longer is missed
SECONDS = 5.0


class Observer:
    """Asks from now on until it is told to stop."""

    def __init__(self, plan: Plan, load: Load) -> None:
        fetch = Fetch(plan.url, plan.api_key, plan.insecure, min(SECONDS, plan.timeout))
        self._scraper = Scraper(fetch, load.target.model, plan.version)
        self.scrapes: list[Scrape] = []
        self._asking = gevent.spawn(self._ask)

    def stop(self) -> None:
        self._asking.kill()

    def notes(self) -> tuple[str, ...]:
        """What the reader should know of how it went."""
        return self._scraper.notes()

    def _ask(self) -> None:
        while True:
            if scrape := self._scraper.scrape():
                self.scrapes.append(scrape)
            gevent.sleep(1)
