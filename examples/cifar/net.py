"""The walk-through's network, for `edge-sdk export --model examples.cifar.net:network`."""

from edge_tools.benchmarks.cifar_net import SmallNet

DIM = 256
"""Width of the embedding."""


def network() -> SmallNet:
    """Pictures (n, 3, 32, 32) on [0, 255] -> logits (n, 10); not trained."""
    return SmallNet(DIM)
