"""Input kinds: what a sample is to a device (numbers, a picture, a sound), and what happens to a file before the graph.

The rules are checked by the very code that reads them on the device, so a file that no device can feed is not written.
"""

import json
from collections.abc import Mapping, Sequence
from typing import Any

from edge_export.preprocess import Preprocess
from edge_export.traced import INPUT, Traced
from edge_sdk.errors import ConfigError, ModelFileError
from edge_sdk.inputs.audio import AudioDecoder
from edge_sdk.inputs.images import ImageRules
from edge_sdk.model import InputSpec

KINDS = ("array", "image", "audio")


def describe_input(traced: Traced, preprocess: Preprocess, *, kind: str | None, rules: Mapping[str, Any]) -> InputSpec:
    """The model file's input, as the device hands it over.

    Args:
        traced: the source.
        preprocess: what is put before it.
        kind: one of `KINDS`, or None: a picture if bytes or channels-last data of 1 or 3 channels go in, else an array.
        rules: what happens to a file before the graph (`resize`, `fit`, `rate`, ...).

    Raises:
        ConfigError: an unknown kind or rule, or rules that the shape does not allow.
    """
    shape = preprocess.outer_shape(traced.input_shape)
    dtype = "uint8" if preprocess.uint8 else traced.input_dtype
    channels = traced.input_shape[0]
    if kind is None:
        pictures = len(shape) == 3 and channels in (1, 3) and (preprocess.uint8 or preprocess.channels_last)
        kind = "image" if pictures else "array"
    if kind not in KINDS:
        raise ConfigError(f"--input-kind {kind}: expected one of {', '.join(KINDS)}")
    if kind == "array" and rules:
        raise ConfigError(f"--input-rule {next(iter(rules))}: rules are for files; say --input-kind image or audio")
    if kind == "image":
        layout = "nhwc" if preprocess.channels_last else "nchw"
        rules = {"layout": layout, "colour": "grey" if channels == 1 else "rgb", **rules}
    spec = InputSpec(INPUT, shape, dtype, kind, dict(rules))
    try:
        if kind == "image":
            ImageRules(spec)
        elif kind == "audio":
            AudioDecoder(spec)
    except ModelFileError as error:
        raise ConfigError(f"--input-kind {kind}: {error}; see --input-rule") from error
    return spec


def parse_rules(rules: Sequence[str]) -> dict[str, Any]:
    """`resize=256` and the like as typed, once a rule; values are numbers, JSON, or words.

    Raises:
        ConfigError: no `=` in it.
    """
    parsed: dict[str, Any] = {}
    for rule in rules:
        name, equals, text = rule.partition("=")
        if not (name and equals and text):
            raise ConfigError(f"--input-rule {rule}: expected NAME=VALUE, for example rate=16000")
        try:
            parsed[name] = json.loads(text)
        except ValueError:
            parsed[name] = text
    return parsed
