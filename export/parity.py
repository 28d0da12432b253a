"""The proof that a graph computes what its network does: as close to the truth as PyTorch itself is."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import onnx_ir as ir

from export.batches import Maker, lay_out
from export.domains import domains
from export.errors import ParityError, UntraceableError
from export.figures import Figures, Kind
from export.gates import Origin
from export.initializers import check_weights
from export.lossy import lossy_values
from export.source import Source
from export.trace import Traced
from export.trial import Trial
from export.truth import RejectedError, Truth, find_truth, public
from service import manifest
from service.runtime import MAX_ROWS, Runtime

Progress = Callable[[str, int, int], None]


@dataclass(frozen=True)
class Proof:
    """What was compared and what came of it: the manifest's record, and what a report shows beside it.

    `histograms` count the errors of each tensor, onnxruntime's and PyTorch's, as `export.figures.Histogram`
    does. `figures` are those of every tensor and batch, of the first provider and then of the others.
    """

    parity: manifest.Parity
    batch_coupled: bool
    warnings: tuple[str, ...]
    histograms: dict[str, tuple[tuple[int, ...], tuple[int, ...]]]
    figures: tuple[Figures, ...]

    def table(self) -> str:
        """The errors of each tensor beside PyTorch's own, as lines of text."""
        return table(self.parity.tensors)


def prove(
    source: Source,
    traced: Traced | None,
    model: ir.Model,
    origins: Mapping[str, Origin],
    *,
    runtimes: Sequence[Runtime],
    seed: int = 0,
    max_rows: int = MAX_ROWS,
    progress: Progress | None = None,
) -> Proof:
    """Show that the open model computes what the source does, in every output and in every hidden one.

    A ParityError names the first tensor, in the order data flow, that does not; an UntraceableError a
    network that gives two answers to one question, or keeps something from one call to the next.
    """
    weights = check_weights(source, traced, model)
    truth = find_truth(source, traced, model, origins)
    maker = fit(source, truth, model, seed, max_rows)
    names = [one.name for one in source.inputs]
    trial = Trial(truth, runtimes, names, kinds(model, origins), lossy_values(model))
    batches = maker.all(source.rows)
    for done, batch in enumerate(batches):
        if progress is not None:
            progress("parity", done, len(batches))
        trial.run(batch)
    if progress is not None:
        progress("parity", len(batches), len(batches))
    if (broken := trial.broken()) is not None:
        raise ParityError(broken.says, table(trial.tensors()))
    parity = manifest.Parity(
        reference=truth.reference,
        providers=tuple(runtime.provider for runtime in runtimes),
        seed=seed,
        batches=tuple(trial.records),
        tensors=trial.tensors(),
        identical=weights.identical,
        derived=weights.derived,
        ulp=weights.ulp,
    )
    histograms = {
        name: (tuple(ours.counts.tolist()), tuple(own.counts.tolist()))
        for name, (ours, own) in trial.histograms.items()
    }
    figures = tuple(figure for of_one in trial.figures for figure in of_one)
    warnings = (*truth.warnings, *trial.warnings, *([trial.forgetful] if trial.forgetful else []))
    return Proof(parity, trial.coupled, warnings, histograms, figures)


def table(tensors: Sequence[manifest.TensorParity]) -> str:
    """The errors of each tensor beside PyTorch's own, as lines of text."""
    width = max(map(len, ("tensor", *(one.name for one in tensors))))
    head = f"{'tensor':{width}}  {'rms':>8}  {'PyTorch':>8}  {'max':>8}  {'PyTorch':>8}"
    lines = [
        f"{one.name:{width}}  {one.rms:8.1e}  {one.rms_torch:8.1e}  {one.max:8.1e}  {one.max_torch:8.1e}"
        for one in tensors
    ]
    return "\n".join((head, *lines))


def kinds(model: ir.Model, origins: Mapping[str, Origin]) -> dict[str, Kind]:
    """What each output of a graph is, by its name, in the order data flow."""
    order = {value.name: place for place, node in enumerate(model.graph) for value in node.outputs}
    found: dict[str, Kind] = dict.fromkeys(public(model, origins), "output")
    found |= {name: "gate" if name.endswith("_gate") else "layer" for name in origins}
    return {name: found[name] for name in sorted(found, key=lambda name: order.get(name, -1))}


def fit(source: Source, truth: Truth, model: ir.Model, seed: int, max_rows: int) -> Maker:
    """A maker of batches that the network takes: other lengths and fewer ids are tried where it does not."""
    layout = lay_out(source)
    called = [str(v.name) for v in model.graph.inputs if v.name not in model.graph.initializers]
    names = {one.name: name for one, name in zip(source.inputs, called, strict=True)}
    known = domains(source, model, names)
    fewer = {name: [domain, *domain.smaller()] for name, domain in known.items()}
    reason = ""
    for tried in range(max(map(len, fewer.values()))):
        of = {name: choices[min(tried, len(choices) - 1)] for name, choices in fewer.items()}
        for longer in (layout, *layout.longer()):
            maker = Maker(longer, of, seed, max_rows)
            try:
                truth.own(maker.probe())
            except RejectedError as error:
                reason = reason or str(error)
            else:
                return maker
    inputs = ", ".join(map(str, source.inputs))
    raise UntraceableError(f"the network takes no batch of {inputs} that was tried ({reason})")
