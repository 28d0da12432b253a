"""What the command line offers: presets, data sets and kinds of layers.

They are listed here without PyTorch, which takes over a second to import, so that `--list` and `--help` take
none of it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

LayerKind = Literal["plain", "residual", "highway"]
# whether rows have classes, or numbers to predict
Task = Literal["classes", "number"]

# those that need no download first; parity-K stands for any K
DATASETS = ("digits", "drawn-digits", "names", "parity-K", "mnist", "fashion-mnist", "cifar10")


@dataclass(frozen=True)
class PresetSummary:
    """What a preset is, the data set that it trains on by default, and its number of parameters."""

    description: str
    data: str
    parameters: int


DEFAULT_PRESET = "digits-10"

PRESET_SUMMARIES = {
    "digits-10": PresetSummary("default: 10 highway layers of 64", "drawn-digits", 88_010),
    "deck-20": PresetSummary("20 highway layers of 784 units", "mnist", 24_625_450),
    "fig1-10": PresetSummary("Figure 1: 10 layers, highway", "mnist", 85_660),
    "fig1-10-plain": PresetSummary("Figure 1: 10 layers, plain", "mnist", 102_463),
    "fig1-10-residual": PresetSummary("Figure 1: 10 layers, residual", "mnist", 102_463),
    "fig1-20": PresetSummary("Figure 1: 20 layers, highway", "mnist", 136_660),
    "fig1-20-plain": PresetSummary("Figure 1: 20 layers, plain", "mnist", 153_583),
    "fig1-20-residual": PresetSummary("Figure 1: 20 layers, residual", "mnist", 153_583),
    "fig1-50": PresetSummary("Figure 1: 50 layers, highway", "mnist", 289_660),
    "fig1-50-plain": PresetSummary("Figure 1: 50 layers, plain", "mnist", 306_943),
    "fig1-50-residual": PresetSummary("Figure 1: 50 layers, residual", "mnist", 306_943),
    "fig1-100": PresetSummary("Figure 1: 100 layers, highway", "mnist", 544_660),
    "fig1-100-plain": PresetSummary("Figure 1: 100 layers, plain", "mnist", 562_543),
    "fig1-100-residual": PresetSummary("Figure 1: 100 layers, residual", "mnist", 562_543),
    "conv-16": PresetSummary("Table 1: 9 layers of 16 maps", "mnist", 38_730),
    "conv-16-plain": PresetSummary("Table 1: conv-16, plain layers", "mnist", 40_582),
    "conv-16-residual": PresetSummary("Table 1: conv-16, residual layers", "mnist", 40_582),
    "conv-32": PresetSummary("Table 1: 9 layers of 32 maps", "mnist", 151_178),
    "fitnet-a": PresetSummary("Table 2: 11 layers as in FitNet 1", "cifar10", 236_714),
    "fitnet-b": PresetSummary("Table 2: 19 layers as in FitNet 4", "cifar10", 2_256_838),
    "fitnet-c": PresetSummary("Table 2: 32 thin layers", "cifar10", 1_255_270),
    "charcnn": PresetSummary("character CNN, 2 highway layers", "names", 122_507),
    "cbhg": PresetSummary("Tacotron's CBHG, 4 highway layers", "digits", 145_626),
    "rhn": PresetSummary("recurrent highway net, depth 3", "digits", 26_634),
    "highway-lstm": PresetSummary("3 LSTM layers with depth gates", "digits", 93_962),
    "grid-lstm": PresetSummary("2-D Grid LSTM, parity of 24 bits", "parity-24", 16_898),
    "grid-lstm-1d": PresetSummary("1-D Grid LSTM, depth only", "digits", 25_610),
    "grid-lstm-3d": PresetSummary("3-D Grid LSTM over patches", "digits", 38_538),
    "transformer": PresetSummary("Transformer with highway joins", "digits", 84_810),
    "transformer-residual": PresetSummary("Transformer with residual joins", "digits", 84_940),
}
