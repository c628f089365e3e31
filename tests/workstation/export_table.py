"""The table of sources × architectures in docs/export.md: `python -m tests.workstation.export_table`.

Every architecture is saved in every way that torch knows, exported, and held against torch; a few minutes on one core.
"""

import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from edge_export import ExportReport, export_model
from edge_export.quiet import quiet
from edge_sdk.errors import ExportError
from edge_tools.benchmarks.mobilenet import MobileNetV2
from tests.workstation import export_nets as nets


class Architecture(NamedTuple):
    """A network and what it takes."""

    name: str
    factory: str
    shape: tuple[int, ...]
    dtype: str
    build: Callable[[], nn.Module]

    def sample(self) -> Tensor:
        """Three samples."""
        if self.dtype == "float32":
            return torch.randn(3, *self.shape)
        return torch.randint(0, 80, (3, *self.shape))


def _architectures() -> list[Architecture]:
    from examples.watch.net import ActivityNet

    here = nets.__name__
    return [
        Architecture("watch CNN", "examples.watch.net:ActivityNet", (6, 100), "float32", ActivityNet),
        Architecture("MobileNetV2", f"{MobileNetV2.__module__}:MobileNetV2", (3, 96, 96), "float32", MobileNetV2),
        Architecture("ResNet-18", f"{here}:ResNet18", (3, 64, 64), "float32", nets.ResNet18),
        Architecture("2-layer LSTM", f"{here}:NextCharacter", (80,), "int64", nets.NextCharacter),
        Architecture("transformer", f"{here}:TextTransformer", (24,), "int64", nets.TextTransformer),
    ]


def _saved(architecture: Architecture, folder: Path) -> Iterator[tuple[str, Path, dict[str, Any]]]:
    """(name, file, options) for each way of saving the network."""
    torch.manual_seed(0)
    net, x = architecture.build(), architecture.sample()
    if architecture.dtype == "float32":  # statistics of their own, so that a batch norm is more than a copy
        with torch.no_grad():
            net(x)
    net.eval()
    given = {"input_shape": architecture.shape, "input_dtype": architecture.dtype}
    torch.save(net.state_dict(), folder / "state.pt")
    yield "state_dict", folder / "state.pt", {**given, "model": architecture.factory}
    torch.save(net, folder / "whole.pt")
    yield "pickled module", folder / "whole.pt", {**given, "trust_pickle": True}
    batch = torch.export.Dim("batch")
    with quiet():
        traced: torch.jit.ScriptModule = torch.jit.trace(net, x, check_trace=False)  # type: ignore[no-untyped-call]
        torch.jit.save(traced, folder / "traced.pt")
        torch.jit.save(torch.jit.script(net), folder / "scripted.pt")
        torch.export.save(torch.export.export(net, (x,), dynamic_shapes=({0: batch},)), folder / "program.pt2")
        torch.onnx.export(
            net,
            (x,),
            str(folder / "plain.onnx"),
            dynamic_shapes=({0: batch},),
            external_data=False,
            dynamo=True,
            verbose=False,
        )
    yield "TorchScript, traced", folder / "traced.pt", given
    yield "TorchScript, scripted", folder / "scripted.pt", given
    yield "torch.export", folder / "program.pt2", {}
    yield "ONNX", folder / "plain.onnx", {}


def _row(architecture: str, source: str, report: ExportReport) -> str:
    probabilities = max(row.probabilities for row in report.parity)
    embedding = max(row.embedding for row in report.parity)
    return (
        f"| {architecture} | {source} | {report.dim} | {probabilities:.1e} | {embedding:.1e} "
        f"| {report.size_bytes / 1e6:.2f} | {report.seconds:.1f} |"
    )


def main() -> None:
    """Print the table as Markdown."""
    print("| architecture | source | dim | probabilities | embedding | MB | seconds |")  # noqa: T201
    print("|---|---|---|---|---|---|---|")  # noqa: T201
    for architecture in _architectures():
        with tempfile.TemporaryDirectory() as name:
            for source, path, options in _saved(architecture, Path(name)):
                try:
                    row = _row(architecture.name, source, export_model(path, Path(name) / "model.onnx", **options))
                except ExportError as error:
                    row = f"| {architecture.name} | {source} | refused: {str(error).partition(': ')[2][:150]} |||||"
                print(row, flush=True)  # noqa: T201


if __name__ == "__main__":
    main()
