"""Reads the body of a request, within limits on its size, its time and the memory of the worker."""

from __future__ import annotations

import asyncio
import io

from turnpike.service.errors import RequestTimeoutError, TooLargeError
from turnpike.service.memory.budget import MemoryBudget
from turnpike.service.requests.decompression import Decompressor
from turnpike.service.requests.request import ClientGoneError, Request


class BodyReader:
    """Reads the bodies of all requests of this worker. Their bytes count in the memory budget.

    Args:
        budget: Counts the bytes until they are released.
        limit: Bytes of one body, decompressed.
        seconds: Time in which a body must arrive and be decompressed.
        max_ratio: Most bytes that one compressed byte of a body may become.
    """

    def __init__(self, budget: MemoryBudget, *, limit: int, seconds: float, max_ratio: int = 200) -> None:
        self.budget, self.limit, self.seconds, self.max_ratio = budget, limit, seconds, max_ratio
        self.restart()

    def restart(self) -> None:
        """Forget what waits in an earlier event loop, to which its lock belongs."""
        # held while a slice is decompressed and other callbacks of the event loop get their turn
        self._decompressing = asyncio.Lock()

    def take_complete(self, request: Request) -> bytes | None:
        """The body if all of it has arrived and it is not compressed; else None, then call `read`."""
        body = request.complete_body
        if body is None or b"content-encoding" in request.head.fields:
            return None
        size = len(body)
        if size > self.limit:
            # a body in chunks is refused as soon as it exceeds the limit, so its full size is not known
            raise self._too_large("more" if request.body_length is None else str(size))
        # what `take` does, without a call: this is on the path of most requests
        budget = self.budget
        total = budget.bytes + size
        if total > budget.capacity:
            raise budget.used_up()
        budget.bytes = total
        request.budgeted_bytes = size
        return body

    async def read(self, request: Request) -> bytes:
        """Wait for the whole body. Its bytes count in the budget until they are released."""
        length = request.body_length
        if length is not None and length > self.limit:
            raise self._too_large(str(length))
        decompressor = Decompressor.of(request.body_encoding, request.encoding_header, self.max_ratio)
        deadline = asyncio.get_running_loop().time() + self.seconds
        # gives its bytes back without a copy, unlike a list of chunks to be joined
        body = io.BytesIO()
        more = True
        while more:
            try:
                chunk, more = await request.next_chunk(deadline)
            except TimeoutError as error:
                raise self.too_slow() from error
            if decompressor is None:
                self._take(request, len(chunk))
                body.write(chunk)
            else:
                if decompressor.consumed_bytes + len(chunk) > self.limit:
                    raise self._too_large("more")
                decompressor.feed(chunk)
                # the decompressor frees what it has decompressed
                del chunk
                await self._decompress(request, decompressor, body, deadline)
        if decompressor is not None:
            decompressor.expect_end()
        return body.getvalue()

    def _take(self, request: Request, size: int) -> None:
        if request.budgeted_bytes + size > self.limit:
            raise self._too_large("more")
        self.budget.take(request, size)

    def _too_large(self, size: str) -> TooLargeError:
        return TooLargeError(f"body: expected at most {self.limit} bytes (--max-body), got {size}")

    def too_slow(self) -> RequestTimeoutError:
        return RequestTimeoutError(too_slow_text(self.seconds))

    async def _decompress(
        self, request: Request, decompressor: Decompressor, body: io.BytesIO, deadline: float
    ) -> None:
        """Decompress what has arrived, in slices. Until then it counts in the budget too.

        All bodies take turns: between two slices, even of different bodies, other requests are answered.
        """
        budget = self.budget
        waiting = decompressor.input_bytes
        budget.expect_room(waiting)
        budget.bytes += waiting
        try:
            while waiting:
                async with self._decompressing:
                    if request.client_gone:
                        raise ClientGoneError
                    if asyncio.get_running_loop().time() > deadline:
                        raise self.too_slow()
                    # one byte more than allowed is enough to notice that a body is too large
                    data = decompressor.next_slice(self.limit - request.budgeted_bytes + 1)
                    budget.bytes -= waiting - decompressor.input_bytes
                    waiting = decompressor.input_bytes
                    self._take(request, len(data))
                    decompressor.expect_ratio()
                    body.write(data)
                    if waiting:
                        await asyncio.sleep(0)
        finally:
            budget.bytes -= waiting


def too_slow_text(seconds: float) -> str:
    """What the client is told if its body takes longer."""
    return f"body: expected all of it within {seconds:g} seconds (--body-seconds), got only a part"
