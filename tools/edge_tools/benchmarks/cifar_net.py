"""SmallNet: the CIFAR-10 network of the benchmarks, good for 65 to 70 % in a few minutes on two cores.

It is kept weak on purpose: the benchmarks ask what a device's own memory adds to a global model of ordinary quality,
and the paper's has 72.8 % on the same partition.
"""

import logging

import numpy as np
import torch
from torch import Tensor, nn

from edge_tools.benchmarks.cifar import TrainingSettings

logger = logging.getLogger(__name__)

MEAN = (0.4913, 0.4821, 0.4465)
"""Channel means of the training images, on [0, 1]."""

DEVIATION = (0.245, 0.243, 0.261)


def _block(channels_in: int, channels_out: int) -> nn.Sequential:
    return nn.Sequential(
        nn.Conv2d(channels_in, channels_out, 3, padding=1, bias=False),
        nn.BatchNorm2d(channels_out),
        nn.ReLU(),
        nn.MaxPool2d(2),
    )


class SmallNet(nn.Module):
    """Images (n, 3, 32, 32) on [0, 255] -> logits (n, 10); the embedding is the input of `head`, (n, dim), not
    negative.
    """

    mean: Tensor
    deviation: Tensor

    def __init__(self, dim: int) -> None:
        super().__init__()
        self.register_buffer("mean", torch.tensor(MEAN).view(1, 3, 1, 1) * 255)
        self.register_buffer("deviation", torch.tensor(DEVIATION).view(1, 3, 1, 1) * 255)
        self.convolutions = nn.Sequential(
            _block(3, 16),  # (n, 16, 16, 16)
            _block(16, 32),  # (n, 32, 8, 8)
            _block(32, 64),  # (n, 64, 4, 4)
        )
        self.embed = nn.Sequential(nn.Flatten(), nn.Linear(64 * 16, dim), nn.ReLU())
        self.head = nn.Linear(dim, 10)

    def embedding(self, x: Tensor) -> Tensor:
        """(n, 3, 32, 32) -> (n, dim)."""
        embedded: Tensor = self.embed(self.convolutions((x - self.mean) / self.deviation))
        return embedded

    def forward(self, x: Tensor) -> Tensor:
        """(n, 3, 32, 32) -> logits (n, 10)."""
        logits: Tensor = self.head(self.embedding(x))
        return logits


def train(images: np.ndarray, labels: np.ndarray, settings: TrainingSettings) -> SmallNet:
    """Train one network, seeded: cross-entropy (and the neighbour loss), mirrored and shifted images, AdamW.

    Args:
        images: uint8 (n, 3, 32, 32).
        labels: int64 (n,).
        settings: see `TrainingSettings`.
    """
    torch.manual_seed(settings.seed)
    random = np.random.default_rng(settings.seed)
    net = SmallNet(settings.dim)
    steps = max(1, len(images) // settings.batch)
    optimizer = torch.optim.AdamW(net.parameters(), lr=settings.learning_rate, weight_decay=0.05)
    schedule: torch.optim.lr_scheduler.LRScheduler
    if settings.schedule == "constant":
        schedule = torch.optim.lr_scheduler.ConstantLR(optimizer, factor=1.0)
    else:
        schedule = torch.optim.lr_scheduler.OneCycleLR(
            optimizer, settings.learning_rate, total_steps=steps * settings.epochs, pct_start=0.2
        )
    loss_of = nn.CrossEntropyLoss()
    net.train()
    for epoch in range(settings.epochs):
        order = random.permutation(len(images))
        total = 0.0
        for step in range(steps):
            rows = order[step * settings.batch : (step + 1) * settings.batch]
            batch = torch.from_numpy(_augmented(images[rows], random)).float()
            classes = torch.from_numpy(labels[rows])
            embedding = net.embedding(batch)
            loss = loss_of(net.head(embedding), classes)
            if settings.neighbour_loss:
                loss = loss + settings.neighbour_loss * neighbour_loss(embedding, classes)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            schedule.step()
            total += loss.item()
        logger.info("epoch %d of %d: loss %.3f", epoch + 1, settings.epochs, total / steps)
    return net.eval()


def neighbour_loss(embedding: Tensor, labels: Tensor) -> Tensor:
    """Mean negative log of the kernel mass, exp(-d) as on the device, that each image finds on its own class.

    Leave-one-out among the images of a batch (Goldberger et al., "Neighbourhood Components Analysis", 2004): it gives
    the embedding's distances the scale for which the paper's σ = 1 is right.

    Args:
        embedding: (n, dim).
        labels: int64 (n,).
    """
    size = (embedding**2).sum(dim=1)
    squared = size[:, None] + size[None, :] - 2.0 * embedding @ embedding.T
    log_kernel = -torch.sqrt(squared.clamp(min=1e-4))
    log_kernel = log_kernel.masked_fill(torch.eye(len(embedding), dtype=torch.bool), -1e4)
    own = log_kernel.masked_fill(labels[:, None] != labels[None, :], -1e4)
    has_own = (own > -1e4).any(dim=1)
    return (torch.logsumexp(log_kernel, dim=1) - torch.logsumexp(own, dim=1))[has_own].mean()


def encode(net: SmallNet, images: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Embeddings float32 (n, dim) and probabilities float32 (n, 10) of uint8 images (n, 3, 32, 32)."""
    embeddings, probabilities = [], []
    with torch.no_grad():
        for start in range(0, len(images), 500):
            embedding = net.embedding(torch.from_numpy(images[start : start + 500]).float())
            embeddings.append(embedding.numpy())
            probabilities.append(torch.softmax(net.head(embedding), dim=1).numpy())
    return np.concatenate(embeddings), np.concatenate(probabilities)


def _augmented(images: np.ndarray, random: np.random.Generator) -> np.ndarray:
    """Half of the images mirrored, the batch shifted by up to 3 pixels; uint8 (n, 3, 32, 32)."""
    mirrored = random.random(len(images)) < 0.5
    images = np.where(mirrored[:, None, None, None], images[..., ::-1], images)
    padded = np.pad(images, ((0, 0), (0, 0), (3, 3), (3, 3)))
    down, right = random.integers(0, 7, 2)
    return np.ascontiguousarray(padded[:, :, down : down + 32, right : right + 32])
