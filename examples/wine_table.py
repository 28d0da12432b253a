"""Write wine.csv, a table to try turnpike with: 178 wines, 13 measurements of each, and its grape.

python examples/wine_table.py [wine.csv]
"""

from __future__ import annotations

import csv
import sys
from pathlib import Path

from sklearn.datasets import load_wine

GRAPES = ("barolo", "grignolino", "barbera")
# what stands in brackets is shown as the unit of a column
NAMES = {"alcohol": "alcohol [%]", "magnesium": "magnesium [mg/l]", "proline": "proline [mg/l]"}


def main() -> None:
    path = Path(sys.argv[1] if len(sys.argv) > 1 else "wine.csv")
    wine = load_wine()
    with path.open("w", newline="", encoding="utf-8") as file:
        table = csv.writer(file)
        table.writerow([*(NAMES.get(name, name) for name in wine.feature_names), "grape"])
        for values, grape in zip(wine.data.tolist(), wine.target.tolist(), strict=True):
            table.writerow([*values, GRAPES[grape]])
    print(f"wrote {path}")


if __name__ == "__main__":
    main()
