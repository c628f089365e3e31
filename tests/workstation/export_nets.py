"""Architectures that the export tests run over, written from their papers and small enough to read.

ResNet-18 is built and named as torchvision's is (layer1 / fc), and so is the benchmarks' MobileNetV2 (features /
classifier), so that what holds for them holds for its checkpoints; random weights say as much about an exporter as
trained ones.
"""

import torch
from torch import Tensor, nn


class ResNet18(nn.Module):
    """He et al., "Deep Residual Learning for Image Recognition", CVPR 2016, table 1."""

    def __init__(self, classes: int = 1000) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(3, 64, 7, 2, 3, bias=False)
        self.bn1 = nn.BatchNorm2d(64)
        self.maxpool = nn.MaxPool2d(3, 2, 1)
        self.layer1 = nn.Sequential(BasicBlock(64, 64, 1), BasicBlock(64, 64, 1))
        self.layer2 = nn.Sequential(BasicBlock(64, 128, 2), BasicBlock(128, 128, 1))
        self.layer3 = nn.Sequential(BasicBlock(128, 256, 2), BasicBlock(256, 256, 1))
        self.layer4 = nn.Sequential(BasicBlock(256, 512, 2), BasicBlock(512, 512, 1))
        self.avgpool = nn.AdaptiveAvgPool2d((1, 1))
        self.fc = nn.Linear(512, classes)

    def forward(self, x: Tensor) -> Tensor:
        x = self.maxpool(torch.relu(self.bn1(self.conv1(x))))
        x = self.layer4(self.layer3(self.layer2(self.layer1(x))))  # (n, 512, h, w)
        logits: Tensor = self.fc(torch.flatten(self.avgpool(x), 1))
        return logits


class BasicBlock(nn.Module):
    """Two 3 x 3 convolutions around a shortcut."""

    def __init__(self, channels: int, width: int, stride: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(channels, width, 3, stride, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(width)
        self.conv2 = nn.Conv2d(width, width, 3, 1, 1, bias=False)
        self.bn2 = nn.BatchNorm2d(width)
        self.downsample = (
            nn.Sequential(nn.Conv2d(channels, width, 1, stride, bias=False), nn.BatchNorm2d(width))
            if stride != 1 or channels != width
            else None
        )

    def forward(self, x: Tensor) -> Tensor:
        shortcut = x if self.downsample is None else self.downsample(x)
        return torch.relu(shortcut + self.bn2(self.conv2(torch.relu(self.bn1(self.conv1(x))))))


class NextCharacter(nn.Module):
    """LEAF's Shakespeare model: 80 characters -> the next; 2 LSTM layers (Caldas et al. 2018)."""

    def __init__(self, characters: int = 90, hidden: int = 64) -> None:
        super().__init__()
        self.embed = nn.Embedding(characters, 8)
        self.lstm = nn.LSTM(8, hidden, num_layers=2, batch_first=True)
        self.head = nn.Linear(hidden, characters)

    def forward(self, x: Tensor) -> Tensor:
        output, _ = self.lstm(self.embed(x))  # (n, 80, hidden)
        logits: Tensor = self.head(output[:, -1])
        return logits


class NextCharacterWithStates(NextCharacter):
    """The same, and its key for the datastore: hidden and cell states of both layers."""

    def forward(self, x: Tensor) -> dict[str, Tensor]:  # type: ignore[override]
        output, (hidden, cell) = self.lstm(self.embed(x))  # hidden, cell: (2, n, hidden)
        states = torch.cat([hidden[0], hidden[1], cell[0], cell[1]], dim=1)
        return {"states": states, "logits": self.head(output[:, -1])}


class TextTransformer(nn.Module):
    """Tokens -> class; two encoder layers, mean over tokens (Vaswani et al. 2017)."""

    def __init__(self, vocabulary: int = 200, width: int = 32, classes: int = 4, length: int = 24) -> None:
        super().__init__()
        self.embed = nn.Embedding(vocabulary, width)
        self.position = nn.Parameter(torch.randn(length, width) * 0.1)
        layer = nn.TransformerEncoderLayer(width, 4, 64, batch_first=True)
        self.encoder = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
        self.head = nn.Linear(width, classes)

    def forward(self, x: Tensor) -> Tensor:
        logits: Tensor = self.head(self.encoder(self.embed(x) + self.position).mean(dim=1))
        return logits
