"""Templates of infer requests: the part that clients repeat is decoded once, and the numbers fill its slots.

Requests of one client differ in their numbers only: names, shapes, datatypes and requested outputs are the
same. JSON, binary tensors and protobuf messages are cut into that part, which is the key of a template, and
the numbers. A request that is new or wrong is decoded whole, by the decoder that reports errors.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import NamedTuple, TypeVar

import numpy as np

from turnpike.service.artifact.signature import Signature
from turnpike.service.bounded_cache import BoundedCache
from turnpike.service.codec.tensors import NUMBER_READERS, NumberReader
from turnpike.service.inference_types import Array, InferenceRequest, RequestForm

# more than the kinds of requests that are in use at any one time
MAX_TEMPLATES = 512
# bytes of a key; with MAX_TEMPLATES, this bounds the keys of a cache to a megabyte
MAX_TEMPLATE_BYTES = 2048

K = TypeVar("K", bound=tuple[int | bytes | None, ...])

# Raises a RequestError for a decoded request that is refused. It may depend only on names and shapes, since
# it is not called again for requests that differ only in their numbers.
RequestCheck = Callable[[InferenceRequest, Signature], None]


class TensorSlot(NamedTuple):
    """A tensor whose numbers change from request to request."""

    name: str
    shape: tuple[int, ...]
    dtype: np.dtype[np.generic]
    # number of values
    size: int
    # reads its numbers in JSON
    reader: NumberReader


class RequestTemplate(NamedTuple):
    """The form of a request, and the slots for its numbers in the order in which they are sent."""

    form: RequestForm
    slots: tuple[TensorSlot, ...]
    # bytes of each slot's tensor
    sizes: list[int]

    def filled(self, body: bytes, starts: Iterable[int]) -> InferenceRequest:
        """The request whose tensors begin at these bytes of the body. The caller has compared their sizes."""
        feeds: dict[str, Array] = {}
        # without strict=, which would take 0.2 µs
        for (name, shape, dtype, _, _), start in zip(self.slots, starts):  # noqa: B905
            # 0.3 µs faster than np.frombuffer, and raises an error if the body is too short
            array: Array = np.ndarray(shape, dtype, body, start)
            # kernels may rely on aligned memory, and the tensor can begin at any byte of the body
            feeds[name] = array if array.flags.aligned else array.copy()
        return InferenceRequest(self.form, feeds)


class TemplateCache(BoundedCache[K, RequestTemplate]):
    """The templates of requests that were decoded.

    A key is the serial number of the loaded model, followed by the request without its numbers.
    """

    def __init__(self) -> None:
        super().__init__(MAX_TEMPLATES)

    def learn(self, key: K, request: InferenceRequest) -> None:
        """Keep the template of a request, if other numbers could stand in the place of its own.

        The bytes of booleans need checking. The ids of texts are not in the request, and may by chance have
        as many bytes.
        """
        if request.form.has_texts:
            return
        slots = []
        for name, array in request.feeds.items():
            reader = NUMBER_READERS.get(array.dtype)
            if reader is None:
                return
            slots.append(TensorSlot(name, array.shape, array.dtype, array.size, reader))
        sizes = [array.nbytes for array in request.feeds.values()]
        self.add(key, RequestTemplate(request.form, tuple(slots), sizes))
