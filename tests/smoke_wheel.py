"""Runs a freshly built wheel from an empty folder: `python tests/smoke_wheel.py DIST DEPENDENCIES`.

DIST is the folder with the one wheel, DEPENDENCIES the site-packages folder of an environment that has what the wheel
needs. The wheel itself goes into an environment of its own, so that nothing comes from the checkout. Every module is
imported; it must come from the wheel, and may want for nothing but what an extra brings.
"""

import subprocess
import sys
import tempfile
import venv
import zipfile
from pathlib import Path

PROGRAM = """
import importlib, sys
from edge_sdk.errors import MissingExtraError
for name in sys.argv[2:]:
    try:
        module = importlib.import_module(name)
    except MissingExtraError:
        continue
    except ModuleNotFoundError as error:
        if error.name not in {"annoy", "matplotlib", "onnx", "onnxscript", "sklearn", "torch"}:
            raise
        continue
    if not module.__file__.startswith(sys.argv[1]):
        sys.exit(f"{name} comes from {module.__file__}, not from the wheel")
"""


def main(dist: Path, dependencies: Path) -> None:
    """Install the wheel without its dependencies, import its modules, run the command it brings."""
    (wheel,) = dist.glob("*.whl")
    modules = sorted(
        name.removesuffix(".py").removesuffix("/__init__").replace("/", ".")
        for name in zipfile.ZipFile(wheel).namelist()
        if name.endswith(".py") and not name.endswith("__main__.py")
    )
    with tempfile.TemporaryDirectory() as folder:
        empty = Path(folder).resolve() / "empty"
        empty.mkdir()
        environment = Path(folder).resolve() / "venv"
        venv.create(environment, symlinks=True)
        (site,) = environment.glob("lib/python*/site-packages")
        (site / "dependencies.pth").write_text(f"{dependencies}\n", encoding="utf-8")
        python = str(environment / "bin" / "python")
        pip = [sys.executable, "-m", "pip", "--python", python, "install", "-qq", "--no-deps", "--ignore-installed"]
        for command in (
            [*pip, str(wheel.resolve())],
            [python, "-c", PROGRAM, str(site), *modules],
            [str(environment / "bin" / "edge-sdk"), "--help"],
        ):
            run = subprocess.run(command, cwd=empty, capture_output=True, text=True, check=False)
            if run.returncode != 0:
                sys.exit(f"{wheel.name}: {run.stderr or run.stdout}")
    sys.stdout.write(f"{wheel.name}: {len(modules)} modules imported from an empty folder\n")


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
