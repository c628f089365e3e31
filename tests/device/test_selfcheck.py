"""The self-check finds a machine that computes something else."""

import dataclasses
from typing import Any

import numpy as np
import pytest

from edge_sdk.errors import ModelFileError
from edge_sdk.model import InputSpec, ModelMetadata
from edge_sdk.selfcheck import REFERENCE_KEY, make_reference, reference_inputs, self_check

SPEC = InputSpec("input", (2, 3))
WEIGHTS = np.arange(24, dtype=np.float32).reshape(6, 4) / 10


def _encode(x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    embeddings = x.reshape(len(x), -1) @ WEIGHTS
    powers = np.exp(embeddings[:, :2])
    return embeddings, powers / powers.sum(axis=1, keepdims=True)


def _metadata(reference: dict[str, Any] | None) -> ModelMetadata:
    extensions = {} if reference is None else {REFERENCE_KEY: reference}
    return ModelMetadata(("a", "b"), SPEC, 4, "f", 0, extensions=extensions)


@pytest.fixture
def metadata() -> ModelMetadata:
    metadata = _metadata(make_reference(_encode, SPEC, low=-1.75, high=1.75, tolerance=1e-3))
    return ModelMetadata.from_json(metadata.to_json(), source="test")  # as a device reads it


def test_same_answers_pass(metadata: ModelMetadata) -> None:
    result = self_check(_encode, metadata)
    assert result is not None
    assert result.passed
    assert (result.embedding, result.probabilities) == (0.0, 0.0)


def test_other_embeddings_are_named(metadata: ModelMetadata) -> None:
    result = self_check(lambda x: (_encode(x)[0] * np.float32(1.05), _encode(x)[1]), metadata)
    assert result is not None
    assert not result.passed
    np.testing.assert_allclose(result.embedding, 0.05, rtol=1e-3)
    assert "0.05" in result.message
    assert "\n" not in result.message


def test_not_a_number_does_not_pass(metadata: ModelMetadata) -> None:
    result = self_check(lambda x: (_encode(x)[0] * np.float32("nan"), _encode(x)[1]), metadata)
    assert result is not None
    assert not result.passed


def test_file_without_a_reference_has_nothing_to_check() -> None:
    assert self_check(_encode, _metadata(None)) is None


@pytest.mark.parametrize(
    "damage", [{"embeddings": "AAAA"}, {"embeddings": "not base64!"}, {"n": "two"}, {"low": None}, {"n": 3}]
)
def test_damaged_reference_is_one_clear_error(metadata: ModelMetadata, damage: dict[str, object]) -> None:
    reference = {**metadata.extensions[REFERENCE_KEY], **damage}
    with pytest.raises(ModelFileError, match="damaged reference"):
        self_check(_encode, dataclasses.replace(metadata, extensions={REFERENCE_KEY: reference}))


def test_reference_inputs_are_the_same_on_every_machine() -> None:
    x = reference_inputs(SPEC, n=1, low=0.0, high=1.0, seed=1)
    published = (  # splitmix64's first outputs for seed 1
        *(0x910A2DEC89025CC1, 0xBEEB8DA1658EEC67, 0xF893A2EEFB32555E),
        *(0x71C18690EE42C90B, 0x71BB54D8D101B5B9, 0xC34D0BFF90150280),
    )
    np.testing.assert_array_equal(x.ravel(), [(value >> 40) / 2**24 for value in published])


def test_reference_inputs_fill_their_range() -> None:
    tokens = reference_inputs(InputSpec("input", (5000,), "int64"), n=1, low=0, high=7, seed=1)
    assert tokens.dtype == np.int64
    assert sorted(np.unique(tokens)) == list(range(7))
    pixels = reference_inputs(InputSpec("input", (5000,), "uint8"), n=1, low=0, high=256, seed=1)
    assert (pixels.min(), pixels.max()) == (0, 255)
