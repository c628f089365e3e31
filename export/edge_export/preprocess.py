"""Preprocessing inside the graph: what a device would otherwise have to repeat, and could get wrong.

The order is fixed: the device's array (uint8 or float32, channels first or last) -> float32 -> channels first ->
times scale -> minus mean -> divided by std. What is folded in here is part of the fingerprint.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np
import onnx
from onnx import helper, numpy_helper

from edge_export.surgery import rename_everywhere
from edge_export.traced import INPUT
from edge_sdk.errors import ConfigError, ExportError

_MODEL_INPUT = "edge_sdk/model_input"
IMAGENET = ("uint8", "nhwc", "scale=1/255", "mean=0.485,0.456,0.406", "std=0.229,0.224,0.225")
"""What `--preprocess imagenet` stands for: the statistics that most of torchvision's and timm's models want."""


@dataclass(frozen=True)
class Preprocess:
    """Steps before the model, all of them optional."""

    uint8: bool = False
    """Whether the device hands over bytes."""

    channels_last: bool = False
    """Whether the device hands over (..., channels) where the model takes (channels, ...)."""

    scale: float = 1.0
    mean: tuple[float, ...] = ()
    """One number, or one a channel; after scaling."""

    std: tuple[float, ...] = ()

    def __bool__(self) -> bool:
        """Whether there is anything to do."""
        return self != Preprocess()

    def check(self, shape: tuple[int, ...], dtype: str) -> None:
        """Hold the steps against the model's own input.

        Raises:
            ConfigError: a statistic for another number of channels, or a layout that the input does not have.
            ExportError: the model does not take floats.
        """
        if not self:
            return
        if dtype != "float32":
            raise ExportError(f"--preprocess: the model takes {dtype}, preprocessing makes float32; leave it out")
        for name, values in (("mean", self.mean), ("std", self.std)):
            if len(values) > 1 and len(values) != shape[0]:
                raise ConfigError(
                    f"--preprocess {name}: {len(values)} numbers, the model's input {shape} has {shape[0]} channels"
                )
        if self.channels_last and len(shape) < 2:
            raise ConfigError(f"--preprocess nhwc: the model's input {shape} has no channels to move")

    def outer_shape(self, shape: tuple[int, ...]) -> tuple[int, ...]:
        """Shape of one sample as the device hands it over, for the model's own `shape`."""
        return (*shape[1:], shape[0]) if self.channels_last else shape

    def apply(self, x: np.ndarray) -> np.ndarray:
        """The same steps in NumPy: a device's batch -> float32 for the model."""
        x = x.astype(np.float32)
        if self.channels_last:
            x = np.moveaxis(x, -1, 1)
        if self.scale != 1.0:
            x = x * np.float32(self.scale)
        if self.mean:
            x = x - self._column(self.mean, x.ndim)
        if self.std:
            x = x / self._column(self.std, x.ndim)
        return np.ascontiguousarray(x)

    def insert(self, model: onnx.ModelProto) -> None:
        """Put the steps between the graph's input and whatever used it."""
        graph = model.graph
        value = graph.input[0]
        shape = tuple(dim.dim_value for dim in value.type.tensor_type.shape.dim)[1:]
        rename_everywhere(graph, {INPUT: _MODEL_INPUT})
        steps: list[tuple[str, list[str], dict[str, Any]]] = []
        if self.uint8:
            steps.append(("Cast", [], {"to": onnx.TensorProto.FLOAT}))
        if self.channels_last:
            axes = len(shape) + 1
            steps.append(("Transpose", [], {"perm": [0, axes - 1, *range(1, axes - 1)]}))
        for operator, name, values in (
            ("Mul", "scale", (self.scale,) if self.scale != 1.0 else ()),
            ("Sub", "mean", self.mean),
            ("Div", "std", self.std),
        ):
            if values:
                constant = f"edge_sdk/preprocess_{name}"
                array = self._column(values, len(shape) + 1) if name != "scale" else np.float32(self.scale)
                graph.initializer.append(numpy_helper.from_array(np.asarray(array, np.float32), constant))
                steps.append((operator, [constant], {}))
        nodes, current = [], INPUT
        for number, (operator, constants, attributes) in enumerate(steps):
            result = _MODEL_INPUT if number == len(steps) - 1 else f"edge_sdk/preprocess_{number}"
            nodes.append(
                helper.make_node(
                    operator,
                    [current, *constants],
                    [result],
                    name=f"edge_sdk/preprocess_{operator.lower()}",
                    **attributes,
                )
            )
            current = result
        kept = list(graph.node)
        del graph.node[:]
        graph.node.extend([*nodes, *kept])
        code = onnx.TensorProto.UINT8 if self.uint8 else onnx.TensorProto.FLOAT
        del graph.input[:]
        graph.input.append(helper.make_tensor_value_info(INPUT, code, ["batch", *self.outer_shape(shape)]))

    def describe(self) -> str:
        """The steps, for people."""
        parts = ["uint8"] * self.uint8 + ["channels last"] * self.channels_last
        parts += [f"times {self.scale:.6g}"] * (self.scale != 1.0)
        parts += [f"minus {_numbers(self.mean)}"] * bool(self.mean) + [f"divided by {_numbers(self.std)}"] * bool(
            self.std
        )
        return ", ".join(parts)

    @staticmethod
    def _column(values: tuple[float, ...], axes: int) -> np.ndarray:
        """(1, channels, 1, ...) for an array of `axes` axes."""
        return np.asarray(values, np.float32).reshape((1, -1) + (1,) * (axes - 2))


def parse_preprocess(steps: Sequence[str]) -> Preprocess:
    """`--preprocess` as typed, once a step: uint8, nhwc, scale=1/255, mean=..., std=..., or imagenet for all.

    Raises:
        ConfigError: an unknown step, or no numbers where there must be some.
    """
    values: dict[str, Any] = {}
    for step in [part for typed in steps for part in (IMAGENET if typed == "imagenet" else (typed,))]:
        name, _, text = step.partition("=")
        if step == "uint8":
            values["uint8"] = True
        elif step == "nhwc":
            values["channels_last"] = True
        elif name == "scale" and text:
            values["scale"] = _parsed(step, text)[0]
        elif name in ("mean", "std") and text:
            values[name] = _parsed(step, text)
        else:
            raise ConfigError(
                f"--preprocess {step}: expected uint8, nhwc, scale=1/255, mean=0.5,0.5,0.5, std=0.2,0.2,0.2 or imagenet"
            )
    preprocess = Preprocess(**values)
    if preprocess.scale == 0 or 0 in preprocess.std:
        raise ConfigError("--preprocess: scale and std must not be 0")
    return preprocess


def _parsed(step: str, text: str) -> tuple[float, ...]:
    try:
        numbers = tuple(float(Fraction(part.strip())) for part in text.split(","))
    except (ValueError, ZeroDivisionError) as error:
        raise ConfigError(
            f"--preprocess {step}: expected numbers with commas between them, such as 1/255 or 0.5"
        ) from error
    return numbers


def _numbers(values: tuple[float, ...]) -> str:
    return "(" + ", ".join(f"{value:.4g}" for value in values) + ")"
