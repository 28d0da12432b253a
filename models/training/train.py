"""The training loop: one for all network families, which can be stopped and resumed at any step.

All random numbers depend only on the seed and on the position in the run (the order of an epoch's rows, the
dropout of each step). So the state between two steps is the weights, the optimizer's moments and a few
numbers. A resumed run on the CPU ends with the same bits as one that was never stopped.
"""

from __future__ import annotations

import hashlib
import math
import time
from collections.abc import Callable, Mapping
from contextlib import nullcontext
from dataclasses import dataclass, field
from statistics import fmean
from typing import Any, TypedDict

import torch
from torch import Tensor, nn

from turnpike.common.cpus import whole_cpus
from turnpike.models.data.dataset import Split
from turnpike.models.errors import TrainingError
from turnpike.models.networks.base import Net
from turnpike.models.networks.families import build_network
from turnpike.models.training.augment import augment
from turnpike.models.training.checkpoint import (
    TrainingRecord,
    expect_matching_weights,
    read_checkpoint,
    save_checkpoint,
)
from turnpike.models.training.evaluate import baseline, evaluate, loss_of, metric_of, to_network_input
from turnpike.models.training.gate_budget import GatePenalty
from turnpike.models.training.interval import interval_metrics
from turnpike.models.training.recipe import TABLE_SCORED_EPOCHS
from turnpike.models.training.run_plan import BEST_CHECKPOINT, LAST_CHECKPOINT, RunPlan


class EpochTotals(TypedDict):
    """Sums over the rows of the current epoch so far."""

    loss: float
    # of the gate budget, which is not part of `loss`
    gate_penalty: float
    # right answers, or the variance that is predicted
    right: float
    rows: int


def no_totals() -> EpochTotals:
    return EpochTotals(loss=0.0, gate_penalty=0.0, right=0.0, rows=0)


@dataclass
class TrainingState:
    """How far a run has come.

    Attributes:
        step: Steps taken so far.
        seconds: Time spent in steps and validation.
        totals: Sums over the current epoch.
        history: Loss and accuracies of the finished epochs; with a gate budget, also its penalty.
        best: The entry of `history` of the best network; empty before the first.
    """

    step: int = 0
    seconds: float = 0.0
    totals: EpochTotals = field(default_factory=no_totals)
    history: list[dict[str, float]] = field(default_factory=list)
    best: dict[str, float] = field(default_factory=dict)


@dataclass(frozen=True)
class StepReport:
    """The progress after a step. Loss, penalty and score (accuracy or R2) are means over the epoch so far.

    `gate_penalty` is None without a gate budget.
    """

    step: int
    steps: int
    epoch: int
    epochs: int
    loss: float
    gate_penalty: float | None
    metric: str
    score: float
    history: list[dict[str, float]]


@dataclass(frozen=True)
class TrainingOutcome:
    """How a call of `train` ended; `finished` is False if it was asked to stop before the last step."""

    finished: bool
    state: TrainingState
    record: TrainingRecord


def train(
    plan: RunPlan,
    *,
    resume: bool = False,
    weights: Mapping[str, Tensor] | None = None,
    on_step: Callable[[StepReport], None] = lambda report: None,
    should_stop: Callable[[], bool] = lambda: False,
) -> TrainingOutcome:
    """Train a network and keep the best one by validation, and the last state, in the plan's folder.

    Args:
        plan: What to train, on which data, and where to save it.
        resume: Continue from `last.safetensors` in the folder, which must belong to the same plan.
        weights: The weights to start from. Default: new ones, drawn with the plan's seed.
        on_step: Called after every step, and once more after the validation of each epoch.
        should_stop: Asked before every step; if it returns True, the state is saved and `train` returns.
    """
    run = _TrainingRun(plan)
    if weights is not None:
        run.net.load_state_dict(dict(weights))
    if resume:
        run.restore()
    while run.state.step < plan.steps:
        if should_stop():
            run.save_last()
            return TrainingOutcome(False, run.state, plan.record(run.state.best, run.state.history))
        run.step()
        on_step(run.report())
        if run.state.step % plan.steps_per_epoch == 0:
            run.end_epoch()
            on_step(run.report())
            run.save_last()
    return TrainingOutcome(True, run.state, run.finish())


class _TrainingRun:
    """One run: network, optimizer and state."""

    def __init__(self, plan: RunPlan) -> None:
        self.plan = plan
        self.device = torch.device(plan.device)
        torch.set_num_threads(plan.recipe.threads or whole_cpus())
        torch.manual_seed(plan.seed)
        self.net = build_network(plan.config)
        self.net.fit_scale(plan.data.train.x)
        if plan.data.task == "number":
            self.net.fit_target(plan.data.train.y)
        self.metric = metric_of(self.net)
        # the score by which the best network is chosen
        self.chosen_by = "balanced_accuracy" if plan.recipe.class_weights else self.metric
        self.scored_epochs = TABLE_SCORED_EPOCHS if plan.data.is_table else 1
        by_class = plan.recipe.class_weights or plan.data.is_imbalanced
        self.rarest_class = int(plan.data.class_counts.argmin()) if by_class else None
        self.class_weights: Tensor | None = None
        if plan.recipe.class_weights:
            counts = plan.data.class_counts.double().clamp(min=1)
            self.class_weights = (len(plan.data.train) / (len(counts) * counts)).float().to(self.device)
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
        self.gate_penalty = GatePenalty(self.net) if plan.recipe.gate_budget else None
        self.state = TrainingState()
        self.rows = plan.data.train
        self.row_order = torch.empty(0, dtype=torch.int64)
        self.ordered_epoch = -1

    def step(self) -> None:
        recipe, state = self.plan.recipe, self.state
        started = time.perf_counter()

        # the rows of this step
        epoch, step_in_epoch = divmod(state.step, self.plan.steps_per_epoch)
        if epoch != self.ordered_epoch:
            self._order_rows(epoch)
        if step_in_epoch == 0:
            state.totals = no_totals()
        batch = self.row_order[step_in_epoch * recipe.batch : (step_in_epoch + 1) * recipe.batch]
        torch.manual_seed(_derive_seed(self.plan.seed, state.step))
        x = to_network_input(self.net, self.rows.x[batch].to(self.device))
        y = self.rows.y[batch].to(self.device)
        if recipe.changes_images:
            x = augment(x, recipe)

        # forward pass
        for group in self.optimizer.param_groups:
            group["lr"] = recipe.lr_at(state.step, self.plan.steps)
        with self._precision():
            logits = self.net(x)
        loss = loss_of(self.net, logits.float(), y, self.class_weights)
        loss_value = loss.item()
        if not torch.isfinite(loss):
            raise TrainingError(self._divergence_message(x, loss_value, epoch, step_in_epoch))

        # backward pass
        penalty = None if self.gate_penalty is None else recipe.gate_budget * self.gate_penalty.take()
        self.optimizer.zero_grad()
        torch.autograd.backward(loss if penalty is None else loss + penalty)
        if recipe.clip:
            nn.utils.clip_grad_norm_(self.net.parameters(), recipe.clip)
        self.optimizer.step()

        state.totals["loss"] += loss_value * len(y)
        if penalty is not None:
            state.totals["gate_penalty"] += penalty.item() * len(y)
        # of numbers, the loss is the share of the variance that is not predicted
        right = (logits.argmax(1) == y).sum() if self.metric == "accuracy" else (1 - loss_value) * len(y)
        state.totals["right"] += float(right)
        state.totals["rows"] += len(y)
        state.step += 1
        state.seconds += time.perf_counter() - started

    def end_epoch(self) -> None:
        """Validate, append the epoch to the history, and save the network if it is the best so far."""
        totals = self.state.totals
        started = time.perf_counter()
        scores = self._evaluate(self.plan.data.valid)
        valid_loss = scores["loss"]
        self.state.seconds += time.perf_counter() - started
        if not math.isfinite(valid_loss):
            rows = self.plan.data.valid.x[: self.plan.recipe.batch].to(self.device)
            last_step = self.plan.steps_per_epoch - 1
            raise TrainingError(
                self._divergence_message(
                    to_network_input(self.net, rows), valid_loss, len(self.state.history), last_step
                )
            )
        entry = {
            "epoch": len(self.state.history) + 1,
            "loss": totals["loss"] / totals["rows"],
            self.metric: totals["right"] / totals["rows"],
            **{f"valid_{name}": value for name, value in scores.items()},
            "seconds": self.state.seconds,
        }
        if self.gate_penalty is not None:
            entry["gate_penalty"] = totals["gate_penalty"] / totals["rows"]
        self.state.history.append(entry)
        best = self.state.best
        if not best or self._rank(entry) > self._rank(best):
            self.state.best = entry
            record = self.plan.record(entry, self.state.history)
            save_checkpoint(self.plan.folder / BEST_CHECKPOINT, self.net.state_dict(), record)

    def _rank(self, entry: dict[str, float]) -> tuple[float, float]:
        """How good the network after an epoch of the history is; higher is better.

        This is the mean score of the last epochs. If two networks have the same one, that with the lower loss
        is better.
        """
        epoch = int(entry["epoch"])
        scored = self.state.history[max(0, epoch - self.scored_epochs) : epoch]
        score = fmean(scored_entry[f"valid_{self.chosen_by}"] for scored_entry in scored)
        return score, -entry["valid_loss"]

    def finish(self) -> TrainingRecord:
        """Evaluate the best network on the test rows, once, and save the result in its checkpoint."""
        tensors, _ = read_checkpoint(self.plan.folder / BEST_CHECKPOINT)
        self.net.load_state_dict(tensors)
        scores = {f"test_{name}": value for name, value in self._evaluate(self.plan.data.test).items()}
        metrics = {**self.state.best, **scores, **baseline(self.plan.data)}
        if self.rarest_class is not None:
            metrics["rarest_class"] = self.rarest_class
        if self.plan.interval is not None:
            metrics |= interval_metrics(self.net, self.plan.data, self.plan.interval)
        record = self.plan.record(metrics, self.state.history)
        save_checkpoint(self.plan.folder / BEST_CHECKPOINT, tensors, record)
        return record

    def _evaluate(self, split: Split) -> dict[str, float]:
        return evaluate(self.net, split, class_weights=self.class_weights, rarest_class=self.rarest_class)

    def save_last(self) -> None:
        """Save the state that a resumed run needs, in `last.safetensors`."""
        tensors = {f"net.{name}": tensor for name, tensor in self.net.state_dict().items()}
        for index, moments in self.optimizer.state_dict()["state"].items():
            tensors |= {f"optimizer.{index}.{name}": tensor for name, tensor in moments.items()}
        state = self.state
        progress = {
            "step": state.step,
            "seconds": state.seconds,
            "tally": state.totals,
            "best": state.best,
        }
        record = self.plan.record(state.best, state.history, progress)
        save_checkpoint(self.plan.folder / LAST_CHECKPOINT, tensors, record)

    def restore(self) -> None:
        """Load the state of `last.safetensors`, which must belong to the same plan."""
        path = self.plan.folder / LAST_CHECKPOINT
        tensors, record = read_checkpoint(path)
        self.plan.expect_same_run(record, path)
        weights = {
            name.removeprefix("net."): tensor for name, tensor in tensors.items() if name.startswith("net.")
        }
        expect_matching_weights(self.net, weights, path)
        self.net.load_state_dict(weights)
        moments: dict[int, dict[str, Tensor]] = {}
        for name, tensor in tensors.items():
            if name.startswith("optimizer."):
                _, index, moment = name.split(".", 2)
                moments.setdefault(int(index), {})[moment] = tensor
        self.optimizer.load_state_dict({**self.optimizer.state_dict(), "state": moments})
        progress = record.progress
        self.state = TrainingState(
            step=progress["step"],
            seconds=progress["seconds"],
            totals={**no_totals(), **progress["tally"]},
            history=record.history,
            best=progress["best"],
        )

    def report(self) -> StepReport:
        state, totals = self.state, self.state.totals
        rows = max(1, totals["rows"])
        return StepReport(
            step=state.step,
            steps=self.plan.steps,
            epoch=(state.step - 1) // self.plan.steps_per_epoch + 1,
            epochs=self.plan.recipe.epochs,
            loss=totals["loss"] / rows,
            gate_penalty=None if self.gate_penalty is None else totals["gate_penalty"] / rows,
            metric=self.metric,
            score=totals["right"] / rows,
            history=state.history,
        )

    def _order_rows(self, epoch: int) -> None:
        self.rows = self.plan.data.training_rows(self.plan.seed, epoch)
        # negative positions, so that no seed of a row order equals that of a step
        generator = torch.Generator().manual_seed(_derive_seed(self.plan.seed, -1 - epoch))
        self.row_order = torch.randperm(len(self.rows), generator=generator)
        self.ordered_epoch = epoch

    def _precision(self) -> Any:
        if self.plan.recipe.precision == "fp32":
            return nullcontext()
        return torch.autocast(self.device.type, dtype=torch.bfloat16)

    def _divergence_message(self, x: Tensor, loss: float, epoch: int, step_in_epoch: int) -> str:
        cause = _find_non_finite(self.net, x)
        best = self.plan.folder / BEST_CHECKPOINT
        saved = f"; the best network so far is in {best}" if self.state.best else ""
        return (
            f"the loss is {loss} at epoch {epoch + 1}, step {step_in_epoch + 1} of "
            f"{self.plan.steps_per_epoch}: {cause} (learning rate "
            f"{self.plan.recipe.lr_at(self.state.step, self.plan.steps):.3g}); "
            f"try a smaller --lr or --clip 1{saved}"
        )


def _derive_seed(seed: int, position: int) -> int:
    """Return a generator seed for a position in a run; similar seeds and positions share no numbers."""
    digest = hashlib.sha256(f"{seed} {position}".encode()).digest()
    return int.from_bytes(digest[:8], "little", signed=True)


def _find_non_finite(net: Net, x: Tensor) -> str:
    """Run the network once more and say which of its modules is the first to return NaN or infinity."""
    # NaN stands for a blank in a table whose columns the network encodes
    if not torch.isfinite(x if net.encoder is None else x.nan_to_num(0.0)).all():
        return "the training rows themselves hold NaN or infinite values"
    names: list[str] = []

    def make_hook(name: str) -> Callable[[nn.Module, Any, Any], None]:
        def hook(module: nn.Module, args: Any, result: Any) -> None:
            if not names and isinstance(result, Tensor) and not torch.isfinite(result).all():
                names.append(name)

        return hook

    hooks = [module.register_forward_hook(make_hook(name)) for name, module in net.named_modules() if name]
    with torch.no_grad():
        net(x)
    for hook in hooks:
        hook.remove()
    return (
        f"{names[0]} is the first module whose output is not finite" if names else "the logits are too large"
    )
