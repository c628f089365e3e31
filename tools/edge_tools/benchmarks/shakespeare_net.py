"""CharacterNet: a small LSTM that guesses the next character, and its training."""

import logging

import numpy as np
import torch
from torch import Tensor, nn

from edge_tools.benchmarks.shakespeare import ShakespeareSettings, ShakespeareText, train_end

logger = logging.getLogger(__name__)

N_CHARACTERS_EMBEDDED = 32
_STEPS_BETWEEN_REPORTS = 250


class CharacterNet(nn.Module):
    """Character classes -> logits of the next character; one LSTM layer between an embedding and a linear head."""

    def __init__(self, n_classes: int, hidden: int) -> None:
        super().__init__()
        self.characters = nn.Embedding(n_classes, N_CHARACTERS_EMBEDDED)
        self.lstm = nn.LSTM(N_CHARACTERS_EMBEDDED, hidden, batch_first=True)
        self.head = nn.Linear(hidden, n_classes)

    def forward(self, codes: Tensor) -> Tensor:
        """(n, length) int64 -> (n, length, n_classes)."""
        logits: Tensor = self.head(self.lstm(self.characters(codes))[0])
        return logits

    def states(self, codes: Tensor) -> tuple[Tensor, Tensor]:
        """Hidden and cell state after every character, both (n, length, hidden); starts from zero."""
        inputs = self.characters(codes)
        state: tuple[Tensor, Tensor] | None = None
        hidden, cell = [], []
        for step in range(codes.shape[1]):  # nn.LSTM gives the cell state of its last step only
            _, state = self.lstm(inputs[:, step : step + 1], state)
            hidden.append(state[0][0])
            cell.append(state[1][0])
        return torch.stack(hidden, dim=1), torch.stack(cell, dim=1)


def train(text: ShakespeareText, roles: np.ndarray, settings: ShakespeareSettings) -> CharacterNet:
    """Train on random stretches of the roles' learning parts, every character equally likely; seeded.

    Args:
        text: all roles.
        roles: those that take part, (n,).
        settings: see `ShakespeareSettings`.
    """
    torch.manual_seed(settings.seed)
    random = np.random.default_rng(settings.seed)
    stretch = settings.length + 1
    starts = np.concatenate(
        [np.arange(text.start[role], train_end(text, role, settings) - stretch) for role in roles.tolist()]
    )
    net = CharacterNet(len(text.characters), settings.hidden)
    optimizer = torch.optim.Adam(net.parameters(), lr=settings.learning_rate)
    schedule = torch.optim.lr_scheduler.OneCycleLR(
        optimizer, settings.learning_rate, total_steps=settings.steps, pct_start=0.1
    )
    loss_of = nn.CrossEntropyLoss()
    total = 0.0
    for step in range(1, settings.steps + 1):
        first = random.choice(starts, settings.batch)
        rows = torch.from_numpy(text.codes[first[:, None] + np.arange(stretch)].astype(np.int64))
        loss = loss_of(net(rows[:, :-1]).flatten(0, 1), rows[:, 1:].flatten())
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(net.parameters(), 1.0)
        optimizer.step()
        schedule.step()
        total += loss.item()
        if step % _STEPS_BETWEEN_REPORTS == 0:
            logger.info("step %d of %d: cross-entropy %.3f", step, settings.steps, total / _STEPS_BETWEEN_REPORTS)
            total = 0.0
    return net.eval()


def encode(net: CharacterNet, codes: np.ndarray, first: int, context: int) -> tuple[np.ndarray, np.ndarray]:
    """Keys and probabilities at the positions from `first` on.

    The text is read in blocks that overlap by `context` characters, so each position has at least that many before it
    (or all there are).

    Args:
        net: in evaluation mode.
        codes: uint8 (n,), one role's text.
        first: at least 1; the first character to guess.
        context: at least 1.

    Returns:
        float32 (n - first, 2 * hidden), hidden then cell state, and float32 (n - first, n_classes).
    """
    embeddings, probabilities = [], []
    with torch.inference_mode():
        for start in range(first, len(codes), 32 * context):
            targets = range(start, min(start + 32 * context, len(codes)), context)
            begins = np.array([max(0, target - context) for target in targets])
            rows = np.minimum(begins[:, None] + np.arange(2 * context), len(codes) - 1)
            hidden, cell = net.states(torch.from_numpy(codes[rows].astype(np.int64)))
            for row, target in enumerate(targets):
                places = np.arange(target, min(target + context, len(codes))) - 1 - begins[row]
                state = torch.cat([hidden[row, places], cell[row, places]], dim=1)
                embeddings.append(state.numpy())
                probabilities.append(torch.softmax(net.head(hidden[row, places]), dim=1).numpy())
    return np.concatenate(embeddings), np.concatenate(probabilities)
