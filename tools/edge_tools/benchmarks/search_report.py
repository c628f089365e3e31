"""The report of the search benchmark: tables in Markdown, a picture, and the figures that the goals name."""

import platform
from pathlib import Path
from typing import Any

import numpy as np

LAST_LINE = (
    "exact_ratio_10000x1280",
    "annoy_ratio_10000x1280_recall99",
    "unstructured_ratio_10000x1280",
    "index_ram_mb_10000x1280",
    "exact_ratio_100000x512",
    "sentence_ratio_10000x384",
    "window_vs_ring_10000x512",
    "window_vs_annoy_rebuild_10000x512",
    "annoy_window_recall_100000x512",
)
"""The figures of the benchmark's last line; the page has some more."""

GOALS = {
    "exact_ratio_10000x1280": 0.15,
    "exact_ratio_100000x512": 0.12,
    "unstructured_ratio_10000x1280": 1.3,
    "sentence_ratio_10000x384": 0.8,
    "index_ram_mb_10000x1280": 4.0,
}
"""What must not be exceeded."""


def figures(results: list[dict[str, Any]], windows: list[dict[str, Any]]) -> dict[str, float | None]:
    """The named figures, None where something was not measured."""

    def one(field: str, **wanted: Any) -> float | None:
        for result in results:
            if not result.get("note") and all(result[key] == value for key, value in wanted.items()):
                return round(float(result[field]), 4)
        return None

    def window(scheme: str, field: str) -> Any:
        return next((w[field] for w in windows if w["scheme"] == scheme and not w.get("note")), None)

    single = {"threads": 1}
    real = "cifar" if one("ratio", peer="exact", set="cifar", n=10_000, dim=1280, **single) is not None else "low-rank"
    annoy = [
        result["ratio"]
        for result in results
        if result["peer"] == "annoy" and result["n"] == 10_000 and result["dim"] == 1280 and result["set"] == real
        if not result.get("note") and result["recall"] >= 0.99
    ]
    throughput, rebuilt = window("exact", "cycles_per_s"), window("annoy, rebuilt", "cycles_per_s")
    recalls = window("annoy segments", "recall")
    return {
        "exact_ratio_10000x1280": one("ratio", peer="exact", set=real, n=10_000, dim=1280, **single),
        "exact_ratio_10000x1280_low_rank": one("ratio", peer="exact", set="low-rank", n=10_000, dim=1280, **single),
        "annoy_ratio_10000x1280_recall99": round(min(annoy), 4) if annoy else None,
        "unstructured_ratio_10000x1280": one(
            "ratio", peer="exact, copy granted", set="gaussian", n=10_000, dim=1280, **single
        ),
        "unstructured_float32_ratio_10000x1280": one(
            "ratio", peer="exact, float32 store", set="gaussian", n=10_000, dim=1280, **single
        ),
        "index_ram_mb_10000x1280": one("ram_mb", peer="exact", set=real, n=10_000, dim=1280, **single),
        "exact_ratio_100000x512": one("ratio", peer="exact", set="low-rank", n=100_000, dim=512, **single),
        "index_ram_mb_100000x512": one("ram_mb", peer="exact", set="low-rank", n=100_000, dim=512, **single),
        "sentence_ratio_10000x384": one("ratio", peer="exact", set="sentences", n=10_000, dim=384, **single),
        "window_vs_ring_10000x512": _rounded(window("exact", "vs_ring")),
        "window_vs_hnswlib_10000x512": _quotient(throughput, window("hnswlib", "cycles_per_s")),
        "window_vs_usearch_10000x512": _quotient(throughput, window("usearch", "cycles_per_s")),
        "window_vs_annoy_rebuild_10000x512": _quotient(throughput, rebuilt),
        "annoy_window_recall_100000x512": _rounded(list(recalls.values())[-1]) if recalls else None,
        "annoy_window_vs_exact_100000x512": _rounded(window("annoy segments", "vs_exact")),
        "annoy_window_update_p99_ms_100000x512": _rounded(window("annoy segments", "update_p99_ms")),
    }


def markdown(results: list[dict[str, Any]], windows: list[dict[str, Any]], summary: dict[str, float | None]) -> str:
    """The page `performance.md`."""
    lines = [
        "# Search: measured",
        "",
        "Made by `make bench-search` (`python -m edge_tools.benchmarks.search --data DATA --output docs`).",
        f"Machine: {platform.machine()}, Python {platform.python_version()}, NumPy {np.__version__}.",
        "Times are multiples of numpy brute force (float32 matrix, norms, argpartition; one thread unless the row says",
        "otherwise) in the same process, the median of rounds in which both alternate; k = 10, queries are not stored.",
        "`exact` searches a float16 datastore on disk and is right by construction; RAM is the index's private memory.",
        "",
        "![Time and memory of each index](performance.png)",
        "",
        "## One query, and batches of 32",
        "",
        "| set | n × dim | threads | index | effort | recall@10 | one query | p99 | batch of 32 | RAM MB | build s | |",
        "|---|---|---|---|---|---|---|---|---|---|---|---|",
    ]
    for r in results:
        place = f"| {r['set']} | {r['n']} × {r['dim']} | {r['threads']} | {r['peer']} "
        if r.get("note"):
            lines.append(f"{place}| | | | | | | | {r['note']} |")
            continue
        effort = r["effort"] or ""
        lines.append(
            f"{place}| {effort} | {r['recall']:.3f} | {r['ratio']:.3f} | {r['ratio_p99']:.2f} | {r['ratio_batch']:.2f} "
            f"| {r['ram_mb']:.1f} | {r['build_s']:.1f} | {r['method']} |"
        )
    lines += [
        "",
        "## The moving window: learn one, evict the oldest, query one",
        "",
        "Ready embeddings, unsynced; each scheme alternates with a numpy ring buffer in the same process.",
        "",
        "| scheme | n × dim | cycles/s | × ring | update µs | update p99 ms | query µs | recall by turnover "
        "| memory MB by turnover | answers that had left |",
        "|---|---|---|---|---|---|---|---|---|---|",
    ]
    for w in windows:
        place = f"| {w['scheme']} | {w['n']} × {w['dim']} "
        if w.get("note"):
            lines.append(f"{place}| {w['note']} | | | | | | | |")
            continue
        recalls = " / ".join(f"{value:.3f}" for value in w["recall"].values())
        memory = " / ".join(f"{value:.0f}" for value in w["ram_mb"].values())
        lines.append(
            f"{place}| {w['cycles_per_s']:.0f} | {w['vs_ring']:.2f} | {w['update_us']:.0f} | {w['update_p99_ms']:.2f} "
            f"| {w['query_us']:.0f} | {recalls} | {memory} | {w['stale']} |"
        )
    lines += ["", "## Named figures", "", "| figure | value | goal |", "|---|---|---|"]
    for name, value in summary.items():
        goal = f"<= {GOALS[name]}" if name in GOALS else ""
        lines.append(f"| {name} | {'not measured' if value is None else value} | {goal} |")
    return "\n".join(lines) + "\n"


def draw(results: list[dict[str, Any]], windows: list[dict[str, Any]], path: Path) -> None:
    """Time against memory at 10 000 entries, one panel a set."""
    from matplotlib.figure import Figure

    shown = [(name, dim) for name, dim in (("cifar", 1280), ("low-rank", 1280), ("gaussian", 1280), ("sentences", 384))]
    figure = Figure(figsize=(14, 4.2), layout="constrained")
    for axes, (name, dim) in zip(figure.subplots(1, len(shown)), shown, strict=True):
        axes.axhline(1.0, color="0.6", linewidth=1)
        for r in results:
            if r.get("note") or (r["set"], r["dim"], r["n"], r["threads"]) != (name, dim, 10_000, 1):
                continue
            color = "tab:red" if r["peer"].startswith(("exact", "annoy segments")) else "tab:blue"
            axes.scatter(max(r["ram_mb"], 0.05), r["ratio"], color=color)
            label = f" {r['peer']}" + ("" if r["recall"] > 0.9995 else f" ({r['recall']:.2f})")
            axes.annotate(label, (max(r["ram_mb"], 0.05), r["ratio"]), fontsize=7)
        axes.set_title(f"{name}, 10 000 × {dim}")
        axes.set(xscale="log", yscale="log", xlabel="RAM, MB", ylabel="time of one query (numpy brute force = 1)")
    figure.savefig(path, dpi=100)


def _rounded(value: float | None) -> float | None:
    return None if value is None else round(float(value), 4)


def _quotient(mine: float | None, other: float | None) -> float | None:
    return None if mine is None or other is None else round(mine / other, 3)
