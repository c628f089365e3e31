"""The pictures of docs/results.md, small PNGs."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from edge_tools.benchmarks.reproduce.curves import Curves
from edge_tools.benchmarks.reproduce.shift import CAPACITY, PER_STEP, STEPS_BEFORE, Shift
from edge_tools.benchmarks.reproduce.table import Table

_SIZE = (6.0, 3.6)
_DPI = 80  # 480 x 288 pixels, about 20 KB


def draw_all(folder: Path, tables: Sequence[Table], curves: Curves | None, shift: Shift | None) -> list[Path]:
    """Draw what there is; the files written.

    Args:
        folder: made if missing.
        tables: one a set.
        curves: None: not drawn.
        shift: None: not drawn.
    """
    folder.mkdir(parents=True, exist_ok=True)
    written = [_draw_table(folder / "methods.png", tables)] if tables else []
    if curves is not None:
        written += [
            _draw_lambda(folder / "lambda.png", curves),
            _draw_settings(folder / "settings.png", curves),
            _draw_capacity(folder / "capacity.png", curves),
        ]
    if shift is not None:
        written.append(_draw_shift(folder / "shift.png", shift))
    return written


def _draw_table(path: Path, tables: Sequence[Table]) -> Path:
    """Average (bar) and bottom decile (line) of every method on every set."""
    figure, axes = _figure()
    methods = list(tables[0].scores)
    width = 0.8 / len(methods)
    for number, method in enumerate(methods):
        places = [place + (number - (len(methods) - 1) / 2) * width for place in range(len(tables))]
        bars = axes.bar(places, [100 * table.scores[method].average for table in tables], 0.9 * width, label=method)
        for place, table in zip(places, tables, strict=True):
            decile = 100 * table.scores[method].decile
            axes.hlines(decile, place - 0.45 * width, place + 0.45 * width, color="black", linewidth=1.5)
        bars.set_label(method)
    axes.set_xticks(range(len(tables)), [table.name for table in tables], fontsize=8)
    axes.set_ylabel("accuracy, % (line: bottom decile)")
    axes.set_ylim(20, 100)
    axes.legend(fontsize=7, ncols=3, loc="upper center", bbox_to_anchor=(0.5, 1.2))
    return _save(figure, path)


def _draw_lambda(path: Path, curves: Curves) -> Path:
    """Accuracy over λ for several n_m; a dot where leave-one-out ends on average."""
    figure, axes = _figure()
    for n, accuracies in curves.by_entries.items():
        (line,) = axes.plot(curves.weights, [100 * value for value in accuracies], label=f"n_m = {n}")
        chosen = curves.chosen[n]
        nearest = min(range(len(curves.weights)), key=lambda place: abs(curves.weights[place] - chosen))
        axes.plot(chosen, 100 * accuracies[nearest], "o", color=line.get_color())
    axes.set_xlabel("λ (dot: mean λ_m by leave-one-out)")
    axes.set_ylabel("accuracy, %")
    axes.legend(fontsize=8)
    return _save(figure, path)


def _draw_settings(path: Path, curves: Curves) -> Path:
    """Accuracy over k and over the bandwidth."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=_SIZE, layout="constrained")
    left, right = figure.subplots(1, 2, sharey=True)
    left.plot([k for k, _ in curves.by_k], [100 * value for _, value in curves.by_k], "o-")
    left.set_xlabel("k")
    left.set_ylabel("accuracy, %")
    right.semilogx([sigma for sigma, _ in curves.by_bandwidth], [100 * value for _, value in curves.by_bandwidth], "o-")
    right.set_xlabel("bandwidth σ")
    return _save(figure, path)


def _draw_capacity(path: Path, curves: Curves) -> Path:
    figure, axes = _figure()
    shares = [100 * share for share, _, _ in curves.by_capacity]
    axes.plot(shares, [100 * value for _, value, _ in curves.by_capacity], "o-", label="knn")
    axes.plot(shares, [100 * value for _, _, value in curves.by_capacity], "o-", label="knn+head")
    axes.set_xlabel("capacity, % of the user's examples")
    axes.set_ylabel("accuracy, %")
    axes.legend(fontsize=8)
    return _save(figure, path)


def _draw_shift(path: Path, shift: Shift) -> Path:
    figure, axes = _figure()
    entries = [(step + 1 - STEPS_BEFORE) * PER_STEP for step in range(len(shift.global_accuracies))]
    for policy, accuracies in shift.accuracies.items():
        axes.plot(entries, [100 * value for value in accuracies], label=policy)
    axes.plot(entries, [100 * value for value in shift.global_accuracies], "--", color="grey", label="global model")
    axes.axvline(CAPACITY, color="lightgrey", zorder=0)
    axes.set_xlabel(f"entries learnt after the shift (capacity {CAPACITY})")
    axes.set_ylabel("accuracy, %")
    axes.legend(fontsize=7)
    return _save(figure, path)


def _figure() -> tuple[Any, Any]:
    """A figure that no window system knows of, and its axes."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=_SIZE, layout="constrained")
    return figure, figure.subplots()


def _save(figure: Any, path: Path) -> Path:
    figure.savefig(path, dpi=_DPI, metadata={"Software": None})  # no version inside: the same numbers, the same bytes
    return path
