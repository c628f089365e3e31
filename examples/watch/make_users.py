"""Makes the committed slices: three unseen people's windows, learn.npz and test.npz each.

Activities come in an order drawn per person, one after the other, because that is how a device meets them; within an
activity the order is time. The bytes depend on the data alone (no clock in the zip), so git sees a change only when
there is one.
"""

import argparse
import io
import os
import sys
import zipfile
from pathlib import Path

import numpy as np

from examples.watch.archive import add_data_option, archive_path
from examples.watch.split import split_user, unseen_users

HERE = Path(__file__).parent
USERS = (1603, 1619, 1636)
EPOCH = (1980, 1, 1, 0, 0, 0)
"""The earliest time a zip can hold: every member gets it."""


def device_order(label: np.ndarray, rows: np.ndarray, *, user: int) -> np.ndarray:
    """The same rows, activity after activity in this user's own order, time order kept within each.

    Args:
        label: classes of all windows, (n,).
        rows: one user's rows, in time order within each activity.
        user: subject id; seeds the order.
    """
    activities = np.random.default_rng(user).permutation(np.unique(label[rows]))
    return np.concatenate([rows[label[rows] == activity] for activity in activities])


def write_arrays(path: Path, **arrays: np.ndarray) -> None:
    """Like `numpy.savez_compressed`, with bytes that depend on the arrays alone; put in place when complete."""
    path.parent.mkdir(parents=True, exist_ok=True)
    beside = path.with_name(path.name + ".tmp")
    with zipfile.ZipFile(beside, "w") as archive:
        for name, array in arrays.items():
            content = io.BytesIO()
            np.lib.format.write_array(content, np.ascontiguousarray(array), version=(1, 0), allow_pickle=False)
            member = zipfile.ZipInfo(f"{name}.npy", date_time=EPOCH)
            member.external_attr = 0o644 << 16
            archive.writestr(member, content.getvalue(), zipfile.ZIP_DEFLATED, compresslevel=9)
    os.replace(beside, path)


def main() -> int:
    parser = argparse.ArgumentParser(description="Make the three users' files of the watch example.")
    add_data_option(parser)
    parser.add_argument("--output", type=Path, default=HERE / "users")
    arguments = parser.parse_args()
    path = archive_path(parser, arguments.data)
    with np.load(path, allow_pickle=False) as data:
        x, label, subject, names = data["x"], data["label"], data["subject"], data["label_names"]
    if not set(USERS) <= set(unseen_users(subject).tolist()):
        parser.error(f"{path}: users {USERS} are not all among the unseen ones; is this the right data set?")
    for user in USERS:
        split = split_user(subject, label, user)
        for part, rows in (("learn", split.learn), ("test", split.test)):
            rows = device_order(label, rows, user=user)
            target = arguments.output / str(user) / f"{part}.npz"
            write_arrays(target, x=x[rows], label=names[label[rows]])
            print(f"{target}: {len(rows)} windows, {target.stat().st_size} bytes")
    return 0


if __name__ == "__main__":
    sys.exit(main())
