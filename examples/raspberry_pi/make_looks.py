"""Makes looks.onnx: a picture's colours and edges in an 8 × 8 grid, an embedding that nothing was trained for.

    python -m examples.raspberry_pi.make_looks      # needs the export extra
"""

import tempfile
from pathlib import Path

import torch
from torch import Tensor, nn

from edge_export.exporter import export_model
from edge_export.preprocess import Preprocess

SIDE = 96
GRID = 8


class Looks(nn.Module):
    """Pictures (n, 3, 96, 96) on [0, 255] -> logits (n, 2) that say nothing about either class."""

    def __init__(self) -> None:
        super().__init__()
        sobel = torch.tensor([[-1.0, 0.0, 1.0], [-2.0, 0.0, 2.0], [-1.0, 0.0, 1.0]]) / 4
        kernels = torch.stack([sobel, sobel.T])  # (2, 3, 3): edges across and along
        self.edges = nn.Conv2d(3, 2, 3, padding=1, bias=False)
        self.edges.weight = nn.Parameter(kernels[:, None].repeat(1, 3, 1, 1) / 3)
        self.pool = nn.AvgPool2d(SIDE // GRID)
        self.head = nn.Linear(5 * GRID * GRID, 2)
        nn.init.zeros_(self.head.weight)
        nn.init.zeros_(self.head.bias)

    def forward(self, x: Tensor) -> Tensor:
        x = x / 255
        pooled = torch.cat([self.pool(x), 3 * self.pool(self.edges(x).abs())], 1)  # (n, 5, 8, 8)
        logits: Tensor = self.head(pooled.flatten(1))
        return logits


def main() -> None:
    """Write looks.onnx beside this script."""
    with tempfile.TemporaryDirectory() as folder:
        weights = Path(folder) / "looks.pt"
        torch.save(Looks().state_dict(), weights)
        export_model(
            weights,
            Path(__file__).with_name("looks.onnx"),
            model="examples.raspberry_pi.make_looks:Looks",
            input_shape=(3, SIDE, SIDE),
            classes=("nothing", "something"),
            preprocess=Preprocess(uint8=True, channels_last=True),
        )


if __name__ == "__main__":
    main()
