"""Runs the hooks of a model around its network, once for each run, and checks what they return."""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Mapping
from typing import Any

import numpy as np

from turnpike.service.artifact.signature import Signature
from turnpike.service.artifact.tensor import Tensor
from turnpike.service.batching.batch_run import BatchRunner, CompletedBatch, Run
from turnpike.service.batching.queue import QueuedRequest
from turnpike.service.errors import HookError, InternalError, RowsError
from turnpike.service.inference_types import Array
from turnpike.service.registry.hooks import Arrays, Hooks

log = logging.getLogger(__name__)

# axis lengths that an array must have; a name stands for any length
Dims = tuple[int | str, ...]


class HookedRunner(BatchRunner):
    """A BatchRunner of a model with hooks. It never runs in the event loop, which hooks may block.

    Args:
        network: Runs the network alone.
        hooks: The hooks.
        network_signature: The tensors of the network.
        signature: The tensors that requests send and get.
        model: The name of the model and its version, for the log.
    """

    inline = False

    def __init__(
        self,
        network: BatchRunner,
        hooks: Hooks,
        network_signature: Signature,
        signature: Signature,
        model: str,
    ) -> None:
        super().__init__(
            network._run,
            inputs=signature.inputs,
            splittable=signature.splittable,
            batched=network.batched,
            # the network pads its rows itself
            pad_single_rows=False,
            max_rows=network.max_rows,
            unobserved_run=network._unobserved_run,
        )
        self._network = network
        self._hooks = hooks
        self._network_signature, self._signature = network_signature, signature
        self._model = model

    def run_rows(
        self, run: Run, feeds: Mapping[str, Array], rows: int, names: tuple[str, ...]
    ) -> list[Array]:
        """One run of the network, with the hooks before and after it."""
        inputs, levers = _read_only(feeds, self._signature.inputs), feeds.keys() - self._signature.inputs
        network_feeds = inputs
        if self._hooks.before is not None:
            network_feeds = self._before(self._hooks.before, inputs, rows)
        network_feeds = {**network_feeds, **{name: feeds[name] for name in levers}}
        if self._hooks.after is None or self._signature.outputs.keys().isdisjoint(names):
            return self._network.run_rows(run, network_feeds, rows, names)

        # `after` gets all public outputs, whichever of them were asked for
        public = tuple(self._network_signature.outputs)
        hidden = [name for name in names if name not in self._signature.outputs]
        network_names = (*public, *hidden)
        arrays = self._network.run_rows(run, network_feeds, rows, network_names)
        outputs = dict(zip(network_names, arrays, strict=True))
        changed = self._after(
            self._hooks.after,
            _read_only(feeds, self._signature.inputs),
            {name: outputs[name] for name in public},
            rows,
        )
        return [changed[name] if name in changed else outputs[name] for name in names]

    def run_failed(self, requests: list[QueuedRequest], error: Exception) -> list[CompletedBatch]:
        """Set the outcome of every request of a run that failed; return the runs that this took.

        If a hook raised an exception, each of several requests is run again by itself: the exception may
        concern the rows of one of them. A wrong return concerns them all.
        """
        if isinstance(error, HookError) and error.wrong_return:
            log.error("%s", error)
            for request in requests:
                request.outcome = InternalError(f"model {self._model.split('/')[0]!r} failed on these rows")
            return []
        if len(requests) > 1 and isinstance(error, HookError | RowsError):
            return [batch for request in requests for batch in self.run([request])]
        return super().run_failed(requests, error)

    def _before(self, before: Callable[[Arrays], Arrays], inputs: Arrays, rows: int) -> Arrays:
        """The inputs of the network, checked."""
        returned = self._call("before", before, inputs)
        tensors = self._network_signature.inputs
        batch = self._network_signature.batch
        dims = {
            name: tensor.dims if batch is None else (rows, *tensor.dims[1:])
            for name, tensor in tensors.items()
        }
        return self._checked("before", returned, tensors, dims)

    def _after(
        self, after: Callable[[Arrays, Arrays], Arrays], inputs: Arrays, outputs: Arrays, rows: int
    ) -> Arrays:
        """All public outputs, checked."""
        batch = self._signature.batch
        dims: dict[str, Dims] = {}
        for name, tensor in self._signature.outputs.items():
            dims[name] = tensor.dims
            if name in outputs:
                # what the network returned has the right number of rows
                dims[name] = (*outputs[name].shape[:1], *tensor.dims[1:])
            elif batch is not None:
                dims[name] = (rows, *tensor.dims[1:])
        returned = self._call("after", after, inputs, outputs)
        return self._checked("after", returned, self._signature.outputs, dims)

    def _call(self, name: str, hook: Callable[..., Any], *arguments: Arrays) -> Any:
        """What a hook returns. Its exceptions become a HookError: in the service, some have a meaning."""
        try:
            return hook(*arguments)
        except RowsError:
            raise
        except Exception as error:
            raise HookError(f"{self._model}: the hook {name} failed") from error

    def _checked(
        self, hook: str, returned: Any, tensors: Mapping[str, Tensor], dims: Mapping[str, Dims]
    ) -> Arrays:
        """What a hook returned. Raises a HookError unless it has these tensors, with these dimensions."""
        if not isinstance(returned, dict):
            raise self._wrong_return(hook, "a dict", type(returned).__name__)
        if returned.keys() != tensors.keys():
            raise self._wrong_return(hook, _listed(tensors), _listed(returned))
        for name, tensor in tensors.items():
            array = returned[name]
            expected = Tensor(name, tensor.dtype, dims[name])
            if not isinstance(array, np.ndarray | np.generic):
                raise self._wrong_return(hook, str(expected), type(array).__name__)
            if array.dtype != np.dtype(tensor.dtype) or not _has_dims(array.shape, dims[name]):
                raise self._wrong_return(
                    hook, str(expected), str(Tensor(name, str(array.dtype), array.shape))
                )
        # onnxruntime and the encoders need the numbers in the order of the rows
        return {name: np.asarray(returned[name], order="C") for name in tensors}

    def _wrong_return(self, hook: str, expected: str, got: str) -> HookError:
        return HookError(
            f"{self._model}: the hook {hook} returned something wrong: expected {expected}, got {got}",
            wrong_return=True,
        )


def _read_only(feeds: Mapping[str, Array], names: Collection[str]) -> Arrays:
    """Views of the rows that cannot be written to: these rows may run again."""
    views = {name: feeds[name].view() for name in names}
    for view in views.values():
        view.flags.writeable = False
    return views


def _has_dims(shape: tuple[int, ...], dims: Dims) -> bool:
    return len(shape) == len(dims) and all(
        isinstance(dim, str) or dim == size for dim, size in zip(dims, shape, strict=True)
    )


def _listed(names: Collection[object]) -> str:
    return "the tensors " + ", ".join(map(str, names)) if names else "no tensors"
