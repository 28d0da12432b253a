"""The training loop: one for every family; it can be stopped anywhere and goes on as if it had not been.

Everything random is drawn from the seed and the place in the run alone (the order of an epoch's rows,
each step's dropout), so a state saved between two steps is the weights, the optimiser's moments and a
few numbers, and a resumed run on the CPU ends with the bits of an uninterrupted one.
"""

from __future__ import annotations

import hashlib
import os
import time
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypedDict

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from models import checkpoint
from models.augment import shifted
from models.checkpoint import Record
from models.data import Dataset, Split
from models.errors import CheckpointError, ConfigError, TrainingError
from models.families import FAMILIES, build, config_from_dict
from models.net import Net, NetConfig
from models.recipe import Recipe

BEST = "model.safetensors"
LAST = "last.safetensors"
EVALUATION_ROWS = 1000


class Tally(TypedDict):
    """What an epoch has come to so far."""

    loss: float
    right: int
    rows: int


@dataclass
class Place:
    """How far a run has come: steps taken, the running epoch's tally, the epochs before, the best one."""

    step: int = 0
    seconds: float = 0.0
    tally: Tally = field(default_factory=lambda: Tally(loss=0.0, right=0, rows=0))
    history: list[dict[str, float]] = field(default_factory=list)
    best: dict[str, float] = field(default_factory=dict)


@dataclass(frozen=True)
class Tick:
    """What a display is told after every step."""

    step: int
    steps: int
    epoch: int
    epochs: int
    loss: float
    accuracy: float
    history: list[dict[str, float]]


@dataclass(frozen=True)
class Plan:
    """One run: which network, on which data, by which recipe, from which seed, into which folder."""

    preset: str
    config: NetConfig
    recipe: Recipe
    data: Dataset
    folder: Path
    seed: int = 0
    device: str = "cpu"

    def __post_init__(self) -> None:
        if (self.data.kind == "text") != FAMILIES[type(self.config)].reads_ids:
            reads = "numbers" if self.data.kind == "text" else "ids of characters"
            raise ConfigError(
                f"data: {self.config.family} reads {reads}, and {self.data.name} holds {self.data.kind}"
            )

    @property
    def steps_per_epoch(self) -> int:
        """Whole batches and the rest, unless the rest is one row, which batch norm cannot be trained on."""
        rows = len(self.data.train)
        whole, rest = divmod(rows, self.recipe.batch)
        return max(1, whole + (rest > 1 or (rest == 1 and self.recipe.batch == 1)))

    @property
    def steps(self) -> int:
        return self.steps_per_epoch * self.recipe.epochs


@dataclass(frozen=True)
class Outcome:
    """How a run ended: `finished` is False where it was asked to stop before its last step."""

    finished: bool
    place: Place
    record: Record


def train(
    plan: Plan,
    *,
    resume: bool = False,
    tell: Callable[[Tick], None] = lambda tick: None,
    stop: Callable[[], bool] = lambda: False,
) -> Outcome:
    """Train, keeping the best network by validation in `model.safetensors` and the last state beside it."""
    run = _Run(plan)
    if resume:
        run.restore()
    while run.place.step < plan.steps:
        if stop():
            run.save_last()
            return Outcome(False, run.place, run.record(run.place.best))
        run.step()
        run.tick(tell)
        if run.place.step % plan.steps_per_epoch == 0:
            run.end_epoch()
            run.tick(tell)
            run.save_last()
    return Outcome(True, run.place, run.finish())


def evaluate(net: Net, split: Split, device: torch.device | str = "cpu") -> tuple[float, float]:
    """Mean cross-entropy and accuracy on a split, in eval mode; the net's own mode is put back."""
    was_training = net.training
    net.eval()
    loss, right = 0.0, 0
    with torch.inference_mode():
        for x, y in _batches(split):
            logits = net(as_input(net, x.to(device)))
            loss += F.cross_entropy(logits, y.to(device), reduction="sum").item()
            right += int((logits.argmax(1) == y.to(device)).sum())
    net.train(was_training)
    return loss / len(split), right / len(split)


def _batches(split: Split) -> Iterator[tuple[Tensor, Tensor]]:
    for start in range(0, len(split), EVALUATION_ROWS):
        rows = slice(start, start + EVALUATION_ROWS)
        yield split.x[rows], split.y[rows]


def as_input(net: Net, rows: Tensor) -> Tensor:
    """Rows as data keeps them (pixels in bytes, say) made what the network reads."""
    return rows if net.reads_ids else rows.float()


def cpus() -> int:
    """How many processors this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def digest(data: Dataset) -> str:
    """What tells one data set's training rows from another's."""
    sha = hashlib.sha256()
    for tensor in (data.train.x, data.train.y):
        sha.update(str((tuple(tensor.shape), tensor.dtype)).encode())
        sha.update(tensor.contiguous().numpy().tobytes())
    return sha.hexdigest()


class _Run:
    def __init__(self, plan: Plan) -> None:
        if plan.device == "cuda" and not torch.cuda.is_available():
            raise ConfigError("device: cuda was asked for, and this PyTorch sees no CUDA device; use cpu")
        self.plan = plan
        self.device = torch.device(plan.device)
        torch.set_num_threads(plan.recipe.threads or cpus())
        torch.manual_seed(plan.seed)
        self.net = build(plan.config)
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
        self.place = Place()
        self.digest = digest(plan.data)
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
            place.tally = Tally(loss=0.0, right=0, rows=0)
        chosen = self.order[within * recipe.batch : (within + 1) * recipe.batch]
        torch.manual_seed(_mix(self.plan.seed, place.step))
        x = as_input(self.net, self.rows.x[chosen].to(self.device))
        y = self.rows.y[chosen].to(self.device)
        if recipe.shift and x.dim() == 4:
            x = shifted(x, recipe.shift)
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
        valid_loss, valid_accuracy = evaluate(self.net, self.plan.data.valid, self.device)
        self.place.seconds += time.perf_counter() - began
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
            checkpoint.save(self.plan.folder / BEST, self.net.state_dict(), self.record(entry))

    def finish(self) -> Record:
        """Look at the test rows once, with the best network, and note the result in its file."""
        tensors, _ = checkpoint.read(self.plan.folder / BEST)
        self.net.load_state_dict(tensors)
        loss, accuracy = evaluate(self.net, self.plan.data.test, self.device)
        record = self.record({**self.place.best, "test_loss": loss, "test_accuracy": accuracy})
        checkpoint.save(self.plan.folder / BEST, tensors, record)
        return record

    def record(self, metrics: dict[str, float], progress: dict[str, Any] | None = None) -> Record:
        data = self.plan.data
        return Record(
            preset=self.plan.preset,
            config=self.plan.config.to_dict(),
            data={
                "name": data.name,
                "digest": self.digest,
                "kind": data.kind,
                "labels": list(data.labels),
                "alphabet": data.alphabet,
            },
            recipe=self.plan.recipe.to_dict(),
            seed=self.plan.seed,
            metrics=metrics,
            history=self.place.history,
            torch=torch.__version__,
            progress=progress or {},
        )

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
        checkpoint.save(self.plan.folder / LAST, tensors, self.record(place.best, progress))

    def restore(self) -> None:
        """Take up the state of `last.safetensors`, which must come from this very plan."""
        path = self.plan.folder / LAST
        tensors, record = checkpoint.read(path)
        self._expect_same_plan(record, path)
        weights = {
            name.removeprefix("net."): tensor for name, tensor in tensors.items() if name.startswith("net.")
        }
        checkpoint.fit_weights(self.net, weights, path)
        self.net.load_state_dict(weights)
        state: dict[int, dict[str, Tensor]] = {}
        for name, tensor in tensors.items():
            if name.startswith("optimizer."):
                _, index, moment = name.split(".", 2)
                state.setdefault(int(index), {})[moment] = tensor
        self.optimizer.load_state_dict({**self.optimizer.state_dict(), "state": state})
        self.place = Place(history=record.history, **record.progress)

    def tick(self, tell: Callable[[Tick], None]) -> None:
        place, tally = self.place, self.place.tally
        rows = max(1, tally["rows"])
        tell(
            Tick(
                step=place.step,
                steps=self.plan.steps,
                epoch=(place.step - 1) // self.plan.steps_per_epoch + 1,
                epochs=self.plan.recipe.epochs,
                loss=tally["loss"] / rows,
                accuracy=tally["right"] / rows,
                history=place.history,
            )
        )

    def _expect_same_plan(self, record: Record, path: Path) -> None:
        plan = self.record({})
        # more epochs may be asked for where the rate does not depend on how many there are
        stretches = plan.recipe["schedule"] == record.recipe.get("schedule") == "constant"
        ignored = {"epochs"} if stretches else set()
        for what, now, then in (
            ("seed", {"seed": plan.seed}, {"seed": record.seed}),
            ("network", plan.config, config_from_dict(record.config).to_dict()),
            ("recipe", plan.recipe, record.recipe),
            ("data", plan.data, record.data),
        ):
            for name in now.keys() | then.keys():
                if name not in ignored and now.get(name) != then.get(name):
                    raise CheckpointError(
                        f"{path}: cannot resume: {what}: the run began with {name} {_short(then.get(name))} "
                        f"and {_short(now.get(name))} is asked for now"
                    )

    def _order(self, epoch: int) -> None:
        self.rows = self.plan.data.epoch(self.plan.seed, epoch)
        generator = torch.Generator().manual_seed(_mix(self.plan.seed, -1 - epoch))
        self.order = torch.randperm(len(self.rows), generator=generator)
        self.ordered_epoch = epoch

    def _precision(self) -> Any:
        if self.plan.recipe.precision == "fp32":
            return nullcontext()
        return torch.autocast(self.device.type, dtype=torch.bfloat16)

    def _broken(self, x: Tensor, loss: float, epoch: int, within: int) -> str:
        where = _first_broken(self.net, x)
        kept = f"; the best network so far is in {self.plan.folder / BEST}" if self.place.best else ""
        return (
            f"the loss is {loss} at epoch {epoch + 1}, step {within + 1} of {self.plan.steps_per_epoch}: "
            f"{where} (learning rate {self.plan.recipe.lr_at(self.place.step, self.plan.steps):.3g}); "
            f"try a smaller --lr or --clip 1{kept}"
        )


def _mix(seed: int, place: int) -> int:
    """One generator seed of a run's seed and a place in it, so that near ones share nothing."""
    return int.from_bytes(hashlib.sha256(f"{seed} {place}".encode()).digest()[:8], "little", signed=True)


def _first_broken(net: Net, x: Tensor) -> str:
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


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 60 else text[:57] + "..."
