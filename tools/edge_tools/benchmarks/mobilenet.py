"""MobileNetV2 at 224 as a model file: the yardstick of every figure that says how little the SDK adds.

The weights are random, which changes neither time nor memory; the batch norms are fitted to the pictures they will see,
so that activations keep the size that trained ones have. The network is written from its paper (Sandler et al.,
"MobileNetV2: Inverted Residuals and Linear Bottlenecks", CVPR 2018, table 2), without torchvision.

    python -m edge_tools.benchmarks.mobilenet FOLDER    # mobilenetv2.onnx, mobilenetv2-int8.onnx; needs torch
"""

import sys
import tempfile
from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn

from edge_export.exporter import export_model
from edge_tools.benchmarks.pictures import LABELS, N_KINDS, make_pictures
from edge_tools.output import say

SIDE = 224
_SETTINGS = ((1, 16, 1, 1), (6, 24, 2, 2), (6, 32, 3, 2), (6, 64, 4, 2), (6, 96, 3, 1), (6, 160, 3, 2), (6, 320, 1, 1))
"""(expansion, channels, repeats, first stride)."""


class MobileNetV2(nn.Module):
    """The network, its parts named as torchvision names them.

    2.2 million weights without the classifier, 300 million multiply-accumulates a picture of 224 x 224, an embedding
    of 1280 numbers.
    """

    def __init__(self, n_classes: int = 1000) -> None:
        super().__init__()
        channels = 32
        layers: list[nn.Module] = [_convolution(3, channels, 3, stride=2)]
        for expansion, width, repeats, stride in _SETTINGS:
            for number in range(repeats):
                layers.append(_Bottleneck(channels, width, stride if number == 0 else 1, expansion))
                channels = width
        layers.append(_convolution(channels, 1280, 1))
        self.features = nn.Sequential(*layers)
        self.classifier = nn.Sequential(nn.Dropout(0.2), nn.Linear(1280, n_classes))

    def forward(self, x: Tensor) -> Tensor:
        """Pictures (n, 3, height, width) to logits (n, n_classes)."""
        x = self.features(x)  # (n, 1280, height / 32, width / 32)
        logits: Tensor = self.classifier(nn.functional.adaptive_avg_pool2d(x, (1, 1)).flatten(1))
        return logits


class _Bottleneck(nn.Module):
    """Expand, filter by channel, project; the input is added where shapes allow."""

    def __init__(self, channels: int, width: int, stride: int, expansion: int) -> None:
        super().__init__()
        self.is_residual = stride == 1 and channels == width
        hidden = channels * expansion
        layers: list[nn.Module] = [_convolution(channels, hidden, 1)] if expansion != 1 else []
        layers += [
            _convolution(hidden, hidden, 3, stride=stride, groups=hidden),
            nn.Conv2d(hidden, width, 1, bias=False),
            nn.BatchNorm2d(width),
        ]
        self.conv = nn.Sequential(*layers)

    def forward(self, x: Tensor) -> Tensor:
        result: Tensor = self.conv(x)
        return x + result if self.is_residual else result


def _convolution(channels: int, width: int, kernel: int, *, stride: int = 1, groups: int = 1) -> nn.Sequential:
    return nn.Sequential(
        nn.Conv2d(channels, width, kernel, stride, kernel // 2, groups=groups, bias=False),
        nn.BatchNorm2d(width),
        nn.ReLU6(),
    )


def of_pictures() -> MobileNetV2:
    """The network for the kinds of `pictures`, its weights unset."""
    return MobileNetV2(N_KINDS)


def fitted() -> MobileNetV2:
    """The network for the kinds of `pictures`, its weights always the same and its batch norms fitted."""
    torch.manual_seed(0)
    network = of_pictures()
    for module in network.modules():
        if isinstance(module, nn.Conv2d):
            nn.init.kaiming_normal_(module.weight, mode="fan_out")
        if isinstance(module, nn.BatchNorm2d):
            module.momentum = None  # the plain average over the batches below
    pictures = torch.from_numpy(make_pictures(64, seed=1)[0])
    with torch.no_grad():
        network.train()
        for start in range(0, len(pictures), 16):
            network(pictures[start : start + 16])
    return network.eval()


def export(folder: Path) -> None:
    """Write the float32 and the int8 model file."""
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as temporary:
        weights, calibration = Path(temporary) / "weights.pt", Path(temporary) / "calibration.npz"
        torch.save(fitted().state_dict(), weights)
        np.savez(calibration, x=make_pictures(64, seed=2)[0])
        for name, int8 in (("mobilenetv2.onnx", False), ("mobilenetv2-int8.onnx", True)):
            export_model(
                weights,
                folder / name,
                model="edge_tools.benchmarks.mobilenet:of_pictures",
                input_shape=(3, SIDE, SIDE),
                classes=LABELS,
                calibration=calibration if int8 else None,
                int8=int8,
                min_agreement=0.0,  # random weights: nothing to agree about, but the graph is the same
            )
            say(f"wrote {folder / name}")


if __name__ == "__main__":
    export(Path(sys.argv[1]))
