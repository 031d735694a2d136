"""How far the bounds on Gaussian report-noisy-max are from the worst pair that a search finds.

python benchmarks/noisy_max_gap.py        about 40 s on one core; seed 0; writes docs/noisy_max_gap.png
Expected: no bound below 1; the minimum at 1.03 to 2.8 times the worst pair, 1.1 to 1.3 where 600 queries are accounted
(ratio 0.04, alpha <= 4); the published charge at 0.13 to 0.79 times the worst pair, that is broken.
"""

from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.axes import Axes

from pate.accounting.noisy_max import disjoint_events, gap_vector, jensen, union, valid_minimum
from pate.audit import worst_noisy_max

PICTURE = Path(__file__).resolve().parent.parent / "docs" / "noisy_max_gap.png"
SIZES = [2, 3, 5, 8, 13, 20, 39, 80, 200]
ORDERS = [1.05, 1.5, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0, 128.0, 300.0]
LINES = {
    "bound 1, union": (union, {"color": "#E69F00", "ls": "-."}),
    "bound 2, disjoint events": (disjoint_events, {"color": "#56B4E9"}),
    "bound 3, gap vector": (lambda a, n, r: gap_vector(a, n * r * r), {"color": "#009E73"}),
    "bound 4, Jensen gap": (jensen, {"color": "#CC79A7"}),
    "minimum, what is charged": (valid_minimum, {"color": "black", "lw": 7, "alpha": 0.25, "zorder": 1}),
    "published charge": (lambda a, n, r: gap_vector(a, r * r), {"color": "#D55E00", "ls": ":", "lw": 2}),
}


def ratios(alpha: float, n: int, ratio: float) -> list[float]:
    """Each bound over the worst divergence found; printed as one row."""
    worst = worst_noisy_max(n, 1.0, alpha, ratio, np.random.default_rng(0), restarts=1).divergence
    row = [float(bound(alpha, n, ratio)[0]) / worst for bound, _ in LINES.values()]
    print(f"{ratio:6.2f} {n:4d} {alpha:7.2f} {worst:10.5g} " + " ".join(f"{x:9.3f}" for x in row), flush=True)
    return row


def draw(axes: Axes, x: list[float], rows: list[list[float]], label: str, title: str) -> None:
    """One panel: ratios over n or alpha, and the region in which a claim is false."""
    for (name, (_, style)), line in zip(LINES.items(), zip(*rows, strict=True), strict=True):
        axes.plot(x, line, label=name, marker=".", **style)
    axes.axhspan(0.01, 1, color="#D55E00", alpha=0.12, lw=0)
    axes.set(xscale="log", yscale="log", ylim=(0.1, 100), xlabel=label, title=title)
    ticks = [2, 5, 10, 39, 200] if label.startswith("n") else [1, 2, 8, 32, 128]
    axes.set_xticks(ticks, [str(t) for t in ticks])
    axes.set_yticks([0.1, 0.5, 1, 2, 5, 10, 50], ["0.1", "0.5", "1", "2", "5", "10", "50"])
    axes.minorticks_off()
    axes.grid(alpha=0.3)


def main() -> None:
    """Search, print, draw."""
    print(" ratio    n   alpha      worst " + " ".join(f"{name.split(',')[0]:>9.9s}" for name in LINES))
    figure, panels = plt.subplots(2, 3, figsize=(13, 7.5), sharey=True, layout="constrained")
    for row, ratio in zip(panels, (0.04, 0.5), strict=True):
        for axes, alpha in zip(row, (2.0, 16.0), strict=False):
            rows = [ratios(alpha, n, ratio) for n in SIZES]
            draw(axes, SIZES, rows, "n, candidates", f"s/σ = {ratio}, α = {alpha:g}")
        draw(row[2], ORDERS, [ratios(a, 39, ratio) for a in ORDERS], "α", f"s/σ = {ratio}, n = 39")
        row[0].set_ylabel("bound / worst divergence found")
    panels[0, 0].text(2.1, 0.13, "false: a pair exceeds it", color="#A04000")
    figure.legend(*panels[0, 0].get_legend_handles_labels(), loc="outside lower center", ncols=6, frameon=False)
    figure.savefig(PICTURE, dpi=110)


if __name__ == "__main__":
    main()
