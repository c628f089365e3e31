"""Writes one client's pictures as two folders, `learn` and `test`, with a sub-folder a label.

The clients are those of the benchmarks: 100, label mixes drawn from Dirichlet(0.3). The files are the data set's JPEGs.

    python -m examples.cifar.client --client 0 -o client
"""

import argparse
from pathlib import Path

import numpy as np

from edge_tools.benchmarks.cifar import data_folder, dirichlet_clients

N_CLIENTS, ALPHA, SEED = 100, 0.3, 0


def write_client(data: Path, output: Path, number: int) -> dict[str, int]:
    """Write the folders; how many pictures each holds.

    Args:
        data: folder of the data sets.
        output: new folder.
        number: of the client, from 0.
    """
    with np.load(data / "cifar10" / "cifar10-jpeg.npz", allow_pickle=False) as archive:
        jpeg, offset, labels = archive["jpeg"], archive["offset"], archive["label"].astype(np.int64)
        names = archive["label_names"].tolist()
    client = dirichlet_clients(labels, N_CLIENTS, alpha=ALPHA, seed=SEED)[number]
    for part, rows in (("learn", client.train), ("test", client.test)):
        for row in rows.tolist():
            folder = output / part / names[labels[row]]
            folder.mkdir(parents=True, exist_ok=True)
            (folder / f"{row:05}.jpg").write_bytes(jpeg[offset[row] : offset[row + 1]].tobytes())
    return {"learn": len(client.train), "test": len(client.test)}


def main() -> None:
    """Write one client."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("-o", "--output", type=Path, default=Path("client"))
    parser.add_argument("--data", type=Path, help="folder of the data sets (default: EDGE_SDK_DATA)")
    parser.add_argument("--client", type=int, default=0, help=f"0 to {N_CLIENTS - 1}")
    options = parser.parse_args()
    counts = write_client(data_folder(options.data), options.output, options.client)
    print(f"{options.output}: {counts['learn']} pictures to learn, {counts['test']} to test")


if __name__ == "__main__":
    main()
