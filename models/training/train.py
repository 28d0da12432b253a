"""The training loop: one for every family; it can be stopped anywhere and goes on as if it had not been.

Everything random is drawn from the seed and the place in the run alone (the order of an epoch's rows,
each step's dropout), so a state saved between two steps is the weights, the optimiser's moments and a
few numbers, and a resumed run on the CPU ends with the bits of an uninterrupted one.
"""

from __future__ import annotations

import hashlib
import math
import os
import time
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass, field
from typing import Any, TypedDict

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from models.errors import TrainingError
from models.networks.base import Net
from models.networks.families import build_network
from models.training import checkpoint
from models.training.checkpoint import TrainingRecord
from models.training.evaluate import evaluate, to_network_input
from models.training.run_plan import BEST_CHECKPOINT, LAST_CHECKPOINT, RunPlan


def random_shift(images: Tensor, by: int) -> Tensor:
    """Move each image by up to `by` pixels in both directions, zeros coming in at the edges.

    Shapes: (batch, channels, height, width) -> the same. Draws from PyTorch's generator of the CPU.
    """
    batch, _, height, width = images.shape
    padded = F.pad(images, (by, by, by, by))
    top, left = torch.randint(0, 2 * by + 1, (2, batch)).to(images.device)
    rows = top[:, None] + torch.arange(height, device=images.device)
    columns = left[:, None] + torch.arange(width, device=images.device)
    which = torch.arange(batch, device=images.device)
    moved = padded[which[:, None, None], :, rows[:, :, None], columns[:, None, :]]
    return moved.permute(0, 3, 1, 2).contiguous()


class EpochTotals(TypedDict):
    """What an epoch has come to so far."""

    loss: float
    right: int
    rows: int


@dataclass
class TrainingState:
    """How far a run has come: steps taken, the running epoch's tally, the epochs before, the best one."""

    step: int = 0
    seconds: float = 0.0
    tally: EpochTotals = field(default_factory=lambda: EpochTotals(loss=0.0, right=0, rows=0))
    history: list[dict[str, float]] = field(default_factory=list)
    best: dict[str, float] = field(default_factory=dict)


@dataclass(frozen=True)
class StepReport:
    """What a display is told after every step."""

    step: int
    steps: int
    epoch: int
    epochs: int
    loss: float
    accuracy: float
    history: list[dict[str, float]]


@dataclass(frozen=True)
class TrainingOutcome:
    """How a run ended: `finished` is False where it was asked to stop before its last step."""

    finished: bool
    place: TrainingState
    record: TrainingRecord


def train(
    plan: RunPlan,
    *,
    resume: bool = False,
    tell: Callable[[StepReport], None] = lambda tick: None,
    stop: Callable[[], bool] = lambda: False,
) -> TrainingOutcome:
    """Train, keeping the best network by validation in `model.safetensors` and the last state beside it."""
    run = _TrainingRun(plan)
    if resume:
        run.restore()
    while run.place.step < plan.steps:
        if stop():
            run.save_last()
            return TrainingOutcome(False, run.place, plan.record(run.place.best, run.place.history))
        run.step()
        run.tick(tell)
        if run.place.step % plan.steps_per_epoch == 0:
            run.end_epoch()
            run.tick(tell)
            run.save_last()
    return TrainingOutcome(True, run.place, run.finish())


def available_cpus() -> int:
    """How many processors this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


class _TrainingRun:
    def __init__(self, plan: RunPlan) -> None:
        self.plan = plan
        self.device = torch.device(plan.device)
        torch.set_num_threads(plan.recipe.threads or available_cpus())
        torch.manual_seed(plan.seed)
        self.net = build_network(plan.config)
        self.net.fit_scale(plan.data.train.x)
        self.net.to(self.device).train()
        matrices = [p for p in self.net.parameters() if p.dim() > 1]
        vectors = [p for p in self.net.parameters() if p.dim() <= 1]
        self.optimizer = torch.optim.AdamW(
            [
                {"params": matrices, "weight_decay": plan.recipe.weight_decay},
                {"params": vectors, "weight_decay": 0.0},
            ],
            lr=plan.recipe.lr,
            fused=True,
        )
        self.place = TrainingState()
        self.rows = plan.data.train
        self.order = torch.empty(0, dtype=torch.int64)
        self.ordered_epoch = -1

    def step(self) -> None:
        recipe, place = self.plan.recipe, self.place
        began = time.perf_counter()
        epoch, within = divmod(place.step, self.plan.steps_per_epoch)
        if epoch != self.ordered_epoch:
            self._order(epoch)
        if within == 0:
            place.tally = EpochTotals(loss=0.0, right=0, rows=0)
        chosen = self.order[within * recipe.batch : (within + 1) * recipe.batch]
        torch.manual_seed(_derive_seed(self.plan.seed, place.step))
        x = to_network_input(self.net, self.rows.x[chosen].to(self.device))
        y = self.rows.y[chosen].to(self.device)
        if recipe.shift:
            x = random_shift(x, recipe.shift)
        for group in self.optimizer.param_groups:
            group["lr"] = recipe.lr_at(place.step, self.plan.steps)
        with self._precision():
            logits = self.net(x)
        loss = F.cross_entropy(logits.float(), y)
        value = loss.item()
        if not torch.isfinite(loss):
            raise TrainingError(self._broken(x, value, epoch, within))
        self.optimizer.zero_grad()
        torch.autograd.backward(loss)
        if recipe.clip:
            nn.utils.clip_grad_norm_(self.net.parameters(), recipe.clip)
        self.optimizer.step()
        place.tally["loss"] += value * len(y)
        place.tally["right"] += int((logits.argmax(1) == y).sum())
        place.tally["rows"] += len(y)
        place.step += 1
        place.seconds += time.perf_counter() - began

    def end_epoch(self) -> None:
        """Validate, note the epoch, and keep the network if it is the best so far."""
        tally = self.place.tally
        began = time.perf_counter()
        valid_loss, valid_accuracy = evaluate(self.net, self.plan.data.valid)
        self.place.seconds += time.perf_counter() - began
        if not math.isfinite(valid_loss):
            x = to_network_input(self.net, self.plan.data.valid.x[: self.plan.recipe.batch].to(self.device))
            raise TrainingError(
                self._broken(x, valid_loss, len(self.place.history), self.plan.steps_per_epoch - 1)
            )
        entry = {
            "epoch": len(self.place.history) + 1,
            "loss": tally["loss"] / tally["rows"],
            "accuracy": tally["right"] / tally["rows"],
            "valid_loss": valid_loss,
            "valid_accuracy": valid_accuracy,
            "seconds": self.place.seconds,
        }
        self.place.history.append(entry)
        best = self.place.best
        # of two equally accurate ones the surer is the better
        if not best or (valid_accuracy, -valid_loss) > (best["valid_accuracy"], -best["valid_loss"]):
            self.place.best = entry
            checkpoint.save_checkpoint(
                self.plan.folder / BEST_CHECKPOINT,
                self.net.state_dict(),
                self.plan.record(entry, self.place.history),
            )

    def finish(self) -> TrainingRecord:
        """Look at the test rows once, with the best network, and note the result in its file."""
        tensors, _ = checkpoint.read_checkpoint(self.plan.folder / BEST_CHECKPOINT)
        self.net.load_state_dict(tensors)
        loss, accuracy = evaluate(self.net, self.plan.data.test)
        metrics = {**self.place.best, "test_loss": loss, "test_accuracy": accuracy}
        record = self.plan.record(metrics, self.place.history)
        checkpoint.save_checkpoint(self.plan.folder / BEST_CHECKPOINT, tensors, record)
        return record

    def save_last(self) -> None:
        tensors = {f"net.{name}": tensor for name, tensor in self.net.state_dict().items()}
        for index, moments in self.optimizer.state_dict()["state"].items():
            tensors |= {f"optimizer.{index}.{name}": tensor for name, tensor in moments.items()}
        place = self.place
        progress = {
            "step": place.step,
            "seconds": place.seconds,
            "tally": place.tally,
            "best": place.best,
        }
        checkpoint.save_checkpoint(
            self.plan.folder / LAST_CHECKPOINT, tensors, self.plan.record(place.best, place.history, progress)
        )

    def restore(self) -> None:
        """Take up the state of `last.safetensors`, which must come from this very plan."""
        path = self.plan.folder / LAST_CHECKPOINT
        tensors, record = checkpoint.read_checkpoint(path)
        self.plan.expect_same(record, path)
        weights = {
            name.removeprefix("net."): tensor for name, tensor in tensors.items() if name.startswith("net.")
        }
        checkpoint.expect_matching_weights(self.net, weights, path)
        self.net.load_state_dict(weights)
        state: dict[int, dict[str, Tensor]] = {}
        for name, tensor in tensors.items():
            if name.startswith("optimizer."):
                _, index, moment = name.split(".", 2)
                state.setdefault(int(index), {})[moment] = tensor
        self.optimizer.load_state_dict({**self.optimizer.state_dict(), "state": state})
        self.place = TrainingState(history=record.history, **record.progress)

    def tick(self, tell: Callable[[StepReport], None]) -> None:
        place, tally = self.place, self.place.tally
        rows = max(1, tally["rows"])
        tell(
            StepReport(
                step=place.step,
                steps=self.plan.steps,
                epoch=(place.step - 1) // self.plan.steps_per_epoch + 1,
                epochs=self.plan.recipe.epochs,
                loss=tally["loss"] / rows,
                accuracy=tally["right"] / rows,
                history=place.history,
            )
        )

    def _order(self, epoch: int) -> None:
        self.rows = self.plan.data.epoch(self.plan.seed, epoch)
        generator = torch.Generator().manual_seed(_derive_seed(self.plan.seed, -1 - epoch))
        self.order = torch.randperm(len(self.rows), generator=generator)
        self.ordered_epoch = epoch

    def _precision(self) -> Any:
        if self.plan.recipe.precision == "fp32":
            return nullcontext()
        return torch.autocast(self.device.type, dtype=torch.bfloat16)

    def _broken(self, x: Tensor, loss: float, epoch: int, within: int) -> str:
        where = _find_non_finite(self.net, x)
        kept = (
            f"; the best network so far is in {self.plan.folder / BEST_CHECKPOINT}" if self.place.best else ""
        )
        return (
            f"the loss is {loss} at epoch {epoch + 1}, step {within + 1} of {self.plan.steps_per_epoch}: "
            f"{where} (learning rate {self.plan.recipe.lr_at(self.place.step, self.plan.steps):.3g}); "
            f"try a smaller --lr or --clip 1{kept}"
        )


def _derive_seed(seed: int, place: int) -> int:
    """One generator seed of a run's seed and a place in it, so that near ones share nothing."""
    return int.from_bytes(hashlib.sha256(f"{seed} {place}".encode()).digest()[:8], "little", signed=True)


def _find_non_finite(net: Net, x: Tensor) -> str:
    """Which part of the network first makes a number that is none, found by running it once more."""
    if not torch.isfinite(x).all():
        return "the training rows themselves hold NaN or infinite values"
    found: list[str] = []

    def look(name: str) -> Callable[[nn.Module, Any, Any], None]:
        def hook(module: nn.Module, args: Any, result: Any) -> None:
            if not found and isinstance(result, Tensor) and not torch.isfinite(result).all():
                found.append(name)

        return hook

    hooks = [module.register_forward_hook(look(name)) for name, module in net.named_modules() if name]
    with torch.no_grad():
        net(x)
    for hook in hooks:
        hook.remove()
    return f"{found[0]} is the first part whose output is not finite" if found else "the logits are too large"
