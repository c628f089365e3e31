"""Trains the walk-through's global model on the training pictures of all clients (minutes on two cores).

python -m examples.cifar.train -o model.pt
"""

import argparse
import logging
import sys
from pathlib import Path

import torch

from edge_tools.benchmarks.cifar import N_TRAIN, TrainingSettings, data_folder, read_images
from edge_tools.benchmarks.cifar_net import train
from examples.cifar.net import DIM


def main() -> None:
    """Train and write the state_dict."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("-o", "--output", type=Path, default=Path("model.pt"))
    parser.add_argument("--data", type=Path, help="folder of the data sets (default: EDGE_SDK_DATA)")
    parser.add_argument("--epochs", type=int, default=5)
    options = parser.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(message)s", stream=sys.stderr)
    images = read_images(data_folder(options.data))
    settings = TrainingSettings(dim=DIM, epochs=options.epochs)
    net = train(images.images[:N_TRAIN], images.labels[:N_TRAIN], settings)
    torch.save(net.state_dict(), options.output)


if __name__ == "__main__":
    main()
