"""`POST …/gates`: the outputs, a summary of each gate, and each row's route through the layers."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass, replace

from service.api.context import Parts
from service.api.gated import GatedEndpoint
from service.api.inquiry import Content, Inquiry, joined
from service.config.cpus import threads
from service.errors import NotFinite, RequestError
from service.gates.query import Detail, Sizes, block_names, detail, expect_size, tensors
from service.gates.reader import GateReader, Reading
from service.inference_types import Answer, Array
from service.protocol.infer_response import assemble, encode, encode_tensors
from service.registry.model import Model

# so many bytes of gates are read in a thread, since they would hold up other requests
MANY_BYTES = 2**19
# more models than are served at any one time
MOST_PREPARED = 256


@dataclass(frozen=True, slots=True)
class Prepared:
    """What the requests to one model have in common; `blocks` are the outputs of its layers."""

    reader: GateReader
    blocks: tuple[str, ...]
    sizes: Sizes
    sizes_with_blocks: Sizes


class GatesEndpoint(GatedEndpoint):
    """Reads the gates of the caller's own rows."""

    def __init__(self, parts: Parts) -> None:
        super().__init__(parts)
        self._prepared: dict[str, Prepared] = {}

    async def content(self, inquiry: Inquiry) -> Content:
        model, inference = inquiry.model, inquiry.inference
        wish = detail(inquiry.course.query, inference.parameters)
        if wish.binary:
            outputs = tuple(replace(output, binary=True) for output in inference.outputs)
            inquiry.inference = inference = replace(inference, outputs=outputs)
        prepared = self._of(model)
        reader = prepared.reader
        read = reader.tensors
        if wish.blocks:
            if not prepared.blocks:
                raise RequestError(
                    "blocks: expected a model that has its layers' outputs, and this one has not"
                )
            read += prepared.blocks
        limit = self.parts.settings.max_gates
        sizes = prepared.sizes_with_blocks if wish.blocks else prepared.sizes
        size = sizes.of(inference)
        expect_size(wish, size, limit)
        if wish.detail == "summary" and not wish.blocks and sizes.whole and size < MANY_BYTES:
            return _summary(inquiry, await inquiry.run(inference.names, reader=reader))
        arrays = await inquiry.by_name(tuple(dict.fromkeys((*inference.names, *read))))
        # shapes that only a run could tell
        size = sum([arrays[name].nbytes for name in read])
        expect_size(wish, size, limit)
        if size < MANY_BYTES:
            return _content(inquiry, wish, reader, arrays)
        return await asyncio.to_thread(_content, inquiry, wish, reader, arrays)

    def _of(self, model: Model) -> Prepared:
        prepared = self._prepared.get(model.digest)
        if prepared is None:
            if len(self._prepared) >= MOST_PREPARED:
                self._prepared.clear()
            profile = None if model.manifest is None else model.manifest.profile
            reader = GateReader(model.gates, model.signature, profile, threads(self.parts.settings))
            blocks = block_names(model.gates)
            prepared = self._prepared[model.digest] = Prepared(
                reader,
                blocks,
                Sizes(reader.tensors, model.signature),
                Sizes((*reader.tensors, *blocks), model.signature),
            )
        return prepared


def _summary(inquiry: Inquiry, answer: Answer) -> Content:
    """The answer where the gates were read with those of all others in the run."""
    model = inquiry.model
    given = encode(model.name, model.version, inquiry.inference, answer, model.labels)
    return _with(given, answer.reading)


def _content(inquiry: Inquiry, wish: Detail, reader: GateReader, arrays: Mapping[str, Array]) -> Content:
    rows = inquiry.inference.rows
    (reading,) = reader.read(arrays, rows)
    content = _with(inquiry.as_infer(arrays), reading)
    pairs = tensors(wish, inquiry.model.gates, reader.tensors, arrays, rows)
    entries, tail = encode_tensors(pairs, binary=wish.binary)
    return joined(content, assemble({"tensors": entries}, tail)) if entries else content


def _with(content: Content, reading: Reading) -> Content:
    """An answer, and in it what was read of the gates."""
    if isinstance(reading, NotFinite):
        raise reading
    if content[1] is None:
        return b"%b,%b}" % (content[0][:-1], reading), None
    return joined(content, (b"{%b}" % reading, None))
