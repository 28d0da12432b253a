"""The trial of one file, in a process of its own: loads it as a worker would, and says what came of it.

`service.process.trial` starts the process, with a JSON object as standard input. The last line of the output
is one, too: `reason` for clients and `error` for the log, both null if the file can be served.
"""

from __future__ import annotations

import json
import os
import sys

from turnpike.service.config.cpus import threads_per_worker
from turnpike.service.config.memory_share import allocation_limit
from turnpike.service.config.settings import Settings
from turnpike.service.errors import ModelFileError
from turnpike.service.memory.free_memory import use_one_heap
from turnpike.service.memory.process_limit import limit_memory, offer_to_oom_killer
from turnpike.service.registry.loader import load
from turnpike.service.repository.scan import ModelFile
from turnpike.service.telemetry.counters import RequestCounters

# requests have priority over a trial
NICENESS = 10


def main() -> None:
    """Answer the request of standard input."""
    request = json.load(sys.stdin)
    # the service has checked them, and this process needs no file that they name
    settings = Settings.model_construct(**request["settings"])
    os.nice(NICENESS)
    # A worker does this once. Twice makes the kernel kill a trial before a worker.
    offer_to_oom_killer()
    offer_to_oom_killer()
    use_one_heap()
    limit_memory(allocation_limit(settings))
    answer: dict[str, str | None] = {"reason": None, "error": None}
    try:
        load(ModelFile.from_json(request["file"]), settings, RequestCounters(), threads_per_worker(settings))
    except ModelFileError as error:
        answer = {"reason": error.public_message, "error": str(error)}
    except MemoryError:
        answer = {"reason": "there is not enough memory to load it", "error": "MemoryError"}
    sys.stdout.write(f"\n{json.dumps(answer)}\n")
    sys.stdout.flush()
    # leaves out what libraries do at the end
    os._exit(0)
