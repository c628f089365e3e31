"""`python -m edge_tools.faults`: kills, power cuts and damaged bytes by the thousand; the last line is one JSON object.

Exit code 3 when anything was lost.
"""

import argparse
import json
import sys
import tempfile
from pathlib import Path

from edge_tools.faults.kills import run_kills, run_rebuild_kills
from edge_tools.faults.power_cuts import MUTATIONS, run_power_cuts
from edge_tools.faults.sweep import run_sweep
from edge_tools.output import say

BUDGET_EXIT = 3


def main() -> int:
    """Run both and report."""
    parser = argparse.ArgumentParser(prog="python -m edge_tools.faults", description=__doc__)
    parser.add_argument("--kills", type=int, default=1000)
    parser.add_argument("--power-cuts", type=int, default=1000)
    parser.add_argument(
        "--stride", type=int, default=1, help="damage every so-manieth byte (slots, manifest: every one)"
    )
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--folder", type=Path, help="where the stores are made (default: the system's folder for such)")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=options.folder, prefix="edge-sdk-faults-") as name:
        folder = Path(name)
        kills_folder, cuts_folder, control_folder = folder / "kills", folder / "cuts", folder / "control"
        for each in (kills_folder, cuts_folder, control_folder):
            each.mkdir()
        kills = run_kills(kills_folder, options.kills, seed=options.seed)
        say(f"kills: {kills}")
        rebuilds = run_rebuild_kills(kills_folder, max(1, options.kills // 10), seed=options.seed)
        say(f"kills of a rebuild: {rebuilds}")
        cuts = run_power_cuts(cuts_folder, options.power_cuts, seed=options.seed)
        say(f"power cuts: {cuts}")
        sweep = run_sweep(folder / "sweep.store", stride=options.stride)
        say(f"damaged files: {sweep}")
        found = {}
        for mutation in MUTATIONS:
            (control_folder / mutation.__name__).mkdir()
            control = run_power_cuts(
                control_folder / mutation.__name__,
                max(48, options.power_cuts // 8),
                seed=options.seed,
                storage_class=mutation,
            )
            found[mutation.__name__] = control.lost + control.unopenable
            say(f"{mutation.__name__}, a build that must lose: {control.lost} lost, {control.unopenable} unopenable")
    result = {
        "kills": kills.kills,
        "lost": kills.lost,
        "unopenable": kills.unopenable,
        "power_cuts": cuts.power_cuts,
        "power_cut_lost": cuts.lost + cuts.unopenable,
        "damaged_files": sweep.damages,
        "damaged_files_wrong": len(sweep.wrong),
        "rebuild_kills": rebuilds.kills,
        "rebuild_lost": rebuilds.lost + rebuilds.unopenable,
        "acknowledged": kills.acknowledged,
        "damaged": kills.damaged + cuts.damaged,
        "mutations_lost": found,
    }
    sys.stdout.write(json.dumps(result) + "\n")
    failures = (
        rebuilds.lost,
        rebuilds.unopenable,
        kills.lost,
        kills.unopenable,
        cuts.lost,
        cuts.unopenable,
        len(sweep.wrong),
    )
    is_good = not any(failures) and all(found.values())
    return 0 if is_good else BUDGET_EXIT


if __name__ == "__main__":
    sys.exit(main())
