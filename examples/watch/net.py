"""ActivityNet: what a wrist is doing, from five seconds of accelerometer and gyroscope.

The network takes the sensor's raw integer steps: the conversion to physical units and the standardisation are buffers,
so they travel inside the exported file and no device can get them wrong.
"""

import torch
from torch import Tensor, nn


def _convolution(channels_in: int, channels_out: int, width: int, stride: int) -> nn.Sequential:
    return nn.Sequential(
        nn.Conv1d(channels_in, channels_out, width, stride=stride, padding=width // 2, bias=False),
        nn.BatchNorm1d(channels_out),
        nn.ReLU(),
    )


class ActivityNet(nn.Module):
    """Windows of raw steps, (n, 6, 100) float32 -> logits, (n, 18) float32.

    The embedding is the input of `head`, the last linear layer: (n, 128), not negative.
    """

    scale: Tensor
    mean: Tensor
    std: Tensor

    def __init__(self) -> None:
        super().__init__()
        # 0.02 m/s2 a step for the accelerometer, 0.01 rad/s for the gyroscope.
        self.register_buffer("scale", torch.tensor([0.02, 0.02, 0.02, 0.01, 0.01, 0.01]))
        self.register_buffer("mean", torch.zeros(6))  # of the training people, physical units
        self.register_buffer("std", torch.ones(6))
        self.convolutions = nn.Sequential(
            _convolution(6, 64, 7, stride=2),  # (n, 64, 50)
            _convolution(64, 96, 5, stride=2),  # (n, 96, 25)
            _convolution(96, 128, 3, stride=1),  # (n, 128, 25)
            _convolution(128, 128, 3, stride=1),  # (n, 128, 25)
        )
        self.dropout = nn.Dropout(0.2)
        self.embed = nn.Sequential(nn.Linear(2 * 128 + 2 * 6, 128), nn.ReLU())
        self.head = nn.Linear(128, 18)

    def embedding(self, x: Tensor) -> Tensor:
        """Raw steps (n, 6, 100) -> (n, 128)."""
        x = (x * self.scale[:, None] - self.mean[:, None]) / self.std[:, None]
        features = self.convolutions(x)
        # Posture (mean) and vigour (spread) of the raw channels go past the convolutions: they tell one wearer's
        # habits apart, which the nearest-neighbour search wants and a classifier for everyone would throw away.
        level = x.mean(dim=2, keepdim=True)
        spread = torch.sqrt(((x - level) ** 2).mean(dim=2) + 1e-4)
        pooled = torch.cat([features.mean(dim=2), features.amax(dim=2), level.squeeze(2), spread], dim=1)
        embedded: Tensor = self.embed(self.dropout(pooled))
        return embedded

    def forward(self, x: Tensor) -> Tensor:
        """Raw steps (n, 6, 100) -> logits (n, 18)."""
        logits: Tensor = self.head(self.embedding(x))
        return logits
