"""The trial of a file without a manifest: a process of its own loads it first, with a time limit.

To open such a file or to run it may take for ever, crash, or use up the memory. In a worker, that would end
requests for other models.
"""

from __future__ import annotations

import asyncio
import json
import logging
from typing import Any

from turnpike.service.child_process import Child, child_process
from turnpike.service.config.settings import SECRETS, Settings
from turnpike.service.process.worker_handle import ExitReasons
from turnpike.service.repository.scan import ModelFile

log = logging.getLogger(__name__)

# what the process runs; it is not imported here, as it needs onnxruntime
MODULE = "turnpike.service.registry.trial_run"
# bytes at the end of the output that are kept
MAX_KEPT_BYTES = 1 << 16


class Trial:
    """Tries files with the settings of the service."""

    def __init__(self, settings: Settings) -> None:
        self._seconds = settings.trial_seconds
        self._settings = settings.model_dump(mode="json", exclude=set(SECRETS))

    async def __call__(self, file: ModelFile) -> str | None:
        """Why a file cannot be served, in words that are safe to send; None if it passed."""
        log.info(
            "%s/%d has no manifest: it is on trial for up to %g s", file.name, file.version, self._seconds
        )
        exits = ExitReasons()
        request = json.dumps({"file": file.to_json(), "settings": self._settings}).encode()
        try:
            async with child_process(MODULE, request) as child, asyncio.timeout(self._seconds):
                answer = await _answer(child, exits)
        except TimeoutError:
            answer = _failure(f"its trial took longer than {self._seconds:g} s (--trial-seconds)")
        except OSError as error:
            answer = _failure("no process can be started for its trial", str(error))
        except Exception:
            # the rollout of all models depends on an answer
            log.exception("%s/%d: its trial failed", file.name, file.version)
            answer = _failure("its trial failed")
        if answer["reason"] is not None:
            log.warning("%s/%d is not served: %s", file.name, file.version, answer["error"])
        return answer["reason"]


async def _answer(child: Child, exits: ExitReasons) -> Any:
    """What the process says of its file, or how it ended."""
    output = b""
    while chunk := await child.output.read(1 << 16):
        output = (output + chunk)[-MAX_KEPT_BYTES:]
    status = await child.status()
    last_line = output.rstrip().rpartition(b"\n")[2].decode(errors="replace")
    if status != 0:
        return _failure(f"its trial {exits.describe(status, killed=False)}", last_line)
    try:
        answer = json.loads(last_line)
        return {"reason": answer["reason"], "error": answer["error"]}
    except (ValueError, TypeError, KeyError):
        # a library of the file has ended the process, or has printed something behind the answer
        return _failure("its trial gave no answer", last_line)


def _failure(reason: str, detail: str = "") -> dict[str, str]:
    return {"reason": reason, "error": f"{reason}: {detail}" if detail else reason}
