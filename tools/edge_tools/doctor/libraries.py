"""Each native library, in a child process, doing the job it is there for."""

import signal
from collections.abc import Iterator
from importlib.metadata import PackageNotFoundError, distribution
from typing import NamedTuple

from edge_tools.doctor.child import run_child
from edge_tools.doctor.finding import Finding, Verdict


class Library(NamedTuple):
    """A native library and a job with a known result."""

    name: str
    """Of the distribution."""

    job: str
    """Python that raises, or prints nothing."""

    needed: bool
    """Whether the device cannot do without it."""

    extra: str = ""
    """Which extra brings it."""


# A MatMul and a Relu over 16 x 16 as an ONNX file: enough to reach the processor's kernels.
_SMALL_MODEL = (
    "CAg6YwoRCgFhCgFiEgFjIgZNYXRNdWwKDAoBYxIBeSIEUmVsdRIBZ1oTCgFhEg4KDAgBEggKAggQCgIIEFoTCgFiEg4KDAgB"
    "EggKAggQCgIIEGITCgF5Eg4KDAgBEggKAggQCgIIEEIECgAQDQ=="
)

LIBRARIES = (
    Library(
        "numpy",
        "import numpy as np\n"
        "a = np.arange(64 * 64, dtype=np.float32).reshape(64, 64) % 7\n"
        "assert (a @ np.eye(64, dtype=np.float32) == a).all(), 'a matrix product is wrong'\n"
        "assert a.astype(np.float16).astype(np.float32).sum() == a.sum(), 'float16 is wrong'\n",
        needed=True,
    ),
    Library(
        "onnxruntime",
        "import base64, numpy as np, onnxruntime\n"
        f"model = base64.b64decode('{_SMALL_MODEL}')\n"
        "session = onnxruntime.InferenceSession(model, providers=['CPUExecutionProvider'])\n"
        "a = np.arange(256, dtype=np.float32).reshape(16, 16) - 128\n"
        "y = session.run(None, {'a': a, 'b': np.eye(16, dtype=np.float32)})[0]\n"
        "assert (y == np.maximum(a, 0)).all(), 'a model of two nodes computes wrong numbers'\n",
        needed=True,
    ),
    Library(
        "Pillow",
        "import io\n"
        "from PIL import Image\n"
        "file = io.BytesIO()\n"
        "Image.new('RGB', (16, 16), (10, 200, 30)).save(file, 'JPEG')\n"
        "assert Image.open(file).convert('RGB').resize((8, 8)).size == (8, 8), 'a picture is wrong'\n",
        needed=True,
    ),
    Library(
        "annoy",
        "from annoy import AnnoyIndex\n"
        "index = AnnoyIndex(4, 'euclidean')\n"
        "for number in range(100): index.add_item(number, [number, 0, 0, 0])\n"
        "index.build(4, 1)\n"
        "assert index.get_nns_by_vector([0, 0, 0, 0], 10) == list(range(10)), 'it does not find the nearest'\n",
        needed=False,
        extra="annoy",
    ),
    Library(
        "scikit-learn",
        "from sklearn.neighbors import NearestNeighbors\n"
        "NearestNeighbors(n_neighbors=1).fit([[0.0], [1.0]]).kneighbors([[0.2]])\n",
        needed=False,
        extra="protonn",
    ),
)

_ADVICE = {
    "numpy": "pip install --force-reinstall numpy; on an older processor an older one: pip install 'numpy<2.3'",
    "onnxruntime": "pip install --force-reinstall 'onnxruntime!=1.21.*' (1.21.0 dies on a Raspberry Pi 4)",
    "Pillow": "pip install --force-reinstall Pillow",
    "annoy": "reinstall without -march=native: ANNOY_COMPILER_ARGS=-O3,-std=c++14 pip install --force-reinstall "
    "--no-binary annoy annoy; until then use the exact index",
    "scikit-learn": "pip install --force-reinstall scikit-learn; only compress needs it",
}
_ILLEGAL = f"killed by {signal.Signals.SIGILL.name}"


def examine_libraries() -> Iterator[Finding]:
    """One finding a library."""
    for library in LIBRARIES:
        yield examine_library(library)


def examine_library(library: Library) -> Finding:
    """Import it in a child and let it work."""
    found = version(library.name)
    if found is None:
        if library.needed:
            return Finding(library.name, Verdict.PROBLEM, "not installed", f"pip install {library.name}")
        return Finding(library.name, Verdict.SKIPPED, "not installed", f"pip install {library.name}")
    outcome = run_child("-c", library.job + "print('{}')")
    if outcome.answer is not None:
        return Finding(library.name, Verdict.OK, f"{found} works")
    detail = f"{found}: {outcome.death}"
    if outcome.death == _ILLEGAL:
        detail += " (built with instructions that this processor does not have)"
    return Finding(library.name, Verdict.PROBLEM if library.needed else Verdict.WARNING, detail, _ADVICE[library.name])


def version(name: str) -> str | None:
    """The installed version of a distribution."""
    try:
        return distribution(name).version
    except PackageNotFoundError:
        return None


def wheel_tags(name: str) -> list[str]:
    """The platforms a distribution was built for, as its WHEEL file says ("manylinux_2_28_aarch64")."""
    try:
        text = distribution(name).read_text("WHEEL") or ""
    except PackageNotFoundError:
        return []
    return [line.rpartition("-")[2] for line in text.splitlines() if line.startswith("Tag:")]
