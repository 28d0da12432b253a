"""Networks of a table as people have it: semicolons, blanks, words, dates, percents and decimal commas."""

from __future__ import annotations

import random
from datetime import date, timedelta
from pathlib import Path

from turnpike.export.pipeline import export_model
from turnpike.models.cli.training_run import config_for_data
from turnpike.models.data.load import load_dataset
from turnpike.models.networks.feedforward import MlpConfig
from turnpike.models.training.recipe import Recipe
from turnpike.models.training.run_plan import RunPlan
from turnpike.models.training.train import train

HEADER = ("mass [kg]", "rate", "color", "member", "day")
COLORS = ("red", "green", "blue")
BLANK_SHARE = 0.1
ROWS = 120


def put_table_models(root: Path, scratch: Path) -> None:
    """Write the models `fruit`, which predicts whether a price is high or low, and `price`, its number."""
    for name, target in (("fruit", "verdict"), ("price", "price")):
        path = scratch / f"{name}.csv"
        path.write_text(_table(target), encoding="utf-8")
        data = load_dataset(str(path))
        config = config_for_data(MlpConfig(inputs=(1,), classes=2, width=16, layers=3), data, [])
        recipe = Recipe(epochs=4, batch=16, lr=0.01, threads=1)
        train(RunPlan(name, config, recipe, data, scratch / name))
        export_model(scratch / name, root, data=path, samples=8)


def _table(target: str) -> str:
    """All columns but `rate` have blanks, and each says something about the target."""
    draw = random.Random(0)
    lines = [[*HEADER, target]]
    for _ in range(ROWS):
        mass, rate = draw.gauss(50, 10), draw.uniform(1, 20)
        color, is_member = draw.choice(COLORS), draw.random() < 0.5
        day = date(2015, 1, 1) + timedelta(days=draw.randrange(2000))
        price = mass / 10 + COLORS.index(color) + 2 * is_member
        cells = [f"{mass:.2f}".replace(".", ","), f"{rate:.1f}%".replace(".", ","), color]
        cells += ["yes" if is_member else "no", f"{day:%d.%m.%Y}"]
        shown = [cell if n == 1 or draw.random() > BLANK_SHARE else "" for n, cell in enumerate(cells)]
        verdict = "high" if price > 7 else "low"
        lines.append([*shown, verdict if target == "verdict" else f"{price:.3f}".replace(".", ",")])
    return "".join(f"{';'.join(cells)}\n" for cells in lines)
