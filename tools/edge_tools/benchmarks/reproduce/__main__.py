"""`python -m edge_tools.benchmarks.reproduce`: every table and curve; the last line is one JSON object."""

import argparse
import json
import logging
import sys
from pathlib import Path

from edge_sdk import EdgeSDKError
from edge_tools.benchmarks.cifar import cache_folder, data_folder, read_encoding
from edge_tools.benchmarks.reproduce.clients import GLOBAL_MODEL, SETS, cifar_dirichlet, watch
from edge_tools.benchmarks.reproduce.curves import make_curves
from edge_tools.benchmarks.reproduce.report import results, sections, write_report
from edge_tools.benchmarks.reproduce.shift import run_shift
from edge_tools.benchmarks.reproduce.table import make_table
from edge_tools.benchmarks.reproduce.unseen import measure_unseen
from edge_tools.output import print_table, say

CURVE_CLIENTS = 40
UNSEEN_CLIENTS = 25


def main() -> None:
    """Run what was asked for."""
    parser = argparse.ArgumentParser(prog="reproduce", description="The paper's tables and curves, and what is added.")
    parser.add_argument("--data", type=Path, help="folder of the data sets; default: EDGE_SDK_DATA")
    parser.add_argument("--cache", type=Path, help="folder of encodings; default: edge-sdk in the user's cache folder")
    parser.add_argument("--sets", nargs="+", choices=list(SETS), default=list(SETS))
    parser.add_argument("--tables-only", action="store_true", help="no curves, no shift, no unseen classes")
    parser.add_argument(
        "--write", type=Path, metavar="DOCS", help="also write DOCS/results.md's tables and its pictures"
    )
    options = parser.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(message)s", stream=sys.stderr)
    logging.getLogger("edge_sdk").setLevel(logging.ERROR)  # a user who changes empties classes: that is the experiment
    try:
        _run(data_folder(options.data), cache_folder(options.cache), options)
    except EdgeSDKError as error:
        say(f"reproduce: {error}")
        sys.exit(1)


def _run(data: Path, cache: Path, options: argparse.Namespace) -> None:
    tables = []
    for name in options.sets:
        say(f"{name}: encoding (minutes the first time, then from {cache})")
        clients = SETS[name](data, cache)
        say(f"{name}: {len(clients)} clients")
        tables.append(make_table(name, clients))
    curves = shift = None
    unseen = []
    if not options.tables_only:
        say("curves over λ, n_m, k, σ and capacity")
        clients = cifar_dirichlet(data, cache)
        curves = make_curves(clients[:CURVE_CLIENTS])
        say("a user who changes")
        shift = run_shift(read_encoding(data, cache, GLOBAL_MODEL))
        say("unseen classes")
        unseen = [
            measure_unseen("wisdm", watch(data, cache)),
            measure_unseen("cifar10-dirichlet", clients[:UNSEEN_CLIENTS]),
        ]
    found = sections(tables, curves, shift, unseen)
    for heading, _, columns, rows in found:
        print_table(heading, columns, rows)
    if options.write:
        from edge_tools.benchmarks.reproduce.pictures import draw_all  # matplotlib, which only pictures need

        draw_all(options.write / "results", tables, curves, shift)
        write_report(options.write / "results.md", found, "results")
    sys.stdout.write(json.dumps(results(tables)) + "\n")


if __name__ == "__main__":
    main()
