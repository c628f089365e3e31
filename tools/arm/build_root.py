"""Builds an emulated ARM system in a folder: arm64 Python from Debian's packages, real aarch64 wheels, Annoy.

No root rights, no chroot, no binfmt: apt resolves and fetches arm64 packages into a folder of its own, `dpkg -x`
unpacks them, pip takes aarch64 wheels, Annoy is cross-compiled, and `python` in the folder is a script that starts
QEMU's user-mode emulation of a Cortex-A72, the core of a Raspberry Pi 4. What is there is kept: the second time takes
no time.

    python tools/arm/build_root.py .arm

Needs Debian or Ubuntu with: qemu-user-static, g++-aarch64-linux-gnu (for Annoy).
"""

import re
import shutil
import stat
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path

CPU = "cortex-a72"
_DEBIAN = ("python3", "libpython3-dev", "libstdc++6")
_WHEELS = ("numpy", "onnxruntime", "Pillow", "typer", "pytest", "hypothesis", "gpiozero")
_PLATFORMS = ("manylinux_2_28_aarch64", "manylinux_2_27_aarch64", "manylinux2014_aarch64", "manylinux_2_17_aarch64")

# onnxruntime reads /proc/cpuinfo when it is imported and dies of the x86-64 file of the emulating machine. Files below
# the root win over the machine's own, so the emulated program sees a Raspberry Pi 4's.
_CPUINFO = """\
processor\t: 0
BogoMIPS\t: 108.00
Features\t: fp asimd evtstrm crc32 cpuid
CPU implementer\t: 0x41
CPU architecture: 8
CPU variant\t: 0x0
CPU part\t: 0xd08
CPU revision\t: 3

Hardware\t: BCM2835
Revision\t: c03111
Model\t\t: Raspberry Pi 4 Model B Rev 1.1
"""

# Tests start `sys.executable` again: that must be the script, because the machine starts no arm64 program by name.
_SITE = 'import os, sys; sys.executable = os.environ["EDGE_SDK_ARM_PYTHON"]\n'  # of a .pth file


def main(folder: Path) -> None:
    """Build what is missing and say in one line what it is."""
    folder = folder.absolute()
    for program, package in (
        ("qemu-aarch64-static", "qemu-user-static"),
        ("aarch64-linux-gnu-g++", "g++-aarch64-linux-gnu"),
        ("apt-get", "apt"),
        ("dpkg", "dpkg"),
    ):
        if shutil.which(program) is None:
            raise SystemExit(f"test-arm needs {program}: apt-get install {package} (on Debian or Ubuntu)")
    folder.mkdir(parents=True, exist_ok=True)
    root, site = folder / "root", folder / "site"
    if not (root / "proc" / "cpuinfo").exists():
        unpack_debian(folder, root)
    version = python_version(root)
    write_python(folder, root, version)
    packages = root / "usr" / "lib" / "python3" / "dist-packages"
    if not (packages / "edge-sdk-arm.pth").exists():
        install_wheels(site, version)
        compile_annoy(folder, root, site, version)
        packages.mkdir(parents=True, exist_ok=True)
        (packages / "edge-sdk-arm.pth").write_text(_SITE)
    say(f"arm: Python {version}, {', '.join(versions(site))} for {CPU} in {folder.name}/")


def unpack_debian(folder: Path, root: Path) -> None:
    """Fetch arm64 packages with everything they depend on, and unpack them."""
    say("arm: fetching arm64 Python (apt)")
    lists, cache, status = folder / "apt" / "lists", folder / "apt" / "cache", folder / "apt" / "status"
    for needed in (lists / "partial", cache / "archives" / "partial"):
        needed.mkdir(parents=True, exist_ok=True)
    status.touch()  # nothing is installed there: apt fetches every dependency
    options = {
        "APT::Architecture": "arm64",
        "APT::Architectures": "arm64",
        "APT::Sandbox::User": "",
        "Dir::State::Lists": str(lists),
        "Dir::State::status": str(status),
        "Dir::Cache": str(cache),
        "Debug::NoLocking": "true",
        "Acquire::Languages": "none",
    }
    apt = ["apt-get", "-qq", *(f"-o{name}={value}" for name, value in options.items())]
    run([*apt, "update"])
    run([*apt, "install", "--yes", "--download-only", "--no-install-recommends", *_DEBIAN])
    root.mkdir(exist_ok=True)
    for package in sorted((cache / "archives").glob("*.deb")):
        run(["dpkg", "-x", str(package), str(root)])
    shutil.rmtree(folder / "apt")
    (root / "proc").mkdir(exist_ok=True)
    (root / "proc" / "cpuinfo").write_text(_CPUINFO)


def python_version(root: Path) -> str:
    """Of the unpacked system, as "3.11"."""
    names = [path.name for path in (root / "usr" / "bin").glob("python3.*")]
    return max((name.removeprefix("python") for name in names if re.fullmatch(r"python3\.\d+", name)), key=len)


def write_python(folder: Path, root: Path, version: str) -> None:
    """The script that is this system's Python."""
    python = folder / "python"
    checkout = Path(__file__).resolve().parent.parent.parent
    sources = ":".join(str(path) for path in (checkout, checkout / "tools", checkout / "export", checkout / "protonn"))
    python.write_text(
        "#!/bin/sh\n"
        f'export EDGE_SDK_ARM_PYTHON="{python}"\n'
        f'export PYTHONPATH="${{PYTHONPATH:+$PYTHONPATH:}}{folder / "site"}:{sources}"\n'
        f'export PYTHONPYCACHEPREFIX="{folder / "pycache"}" OMP_NUM_THREADS=1\n'
        f'exec qemu-aarch64-static -cpu {CPU} -L "{root}" "{root}/usr/bin/python{version}" "$@"\n'
    )
    python.chmod(python.stat().st_mode | stat.S_IXUSR)


def install_wheels(site: Path, version: str) -> None:
    """The wheels that a Raspberry Pi gets."""
    say("arm: installing aarch64 wheels (pip)")
    platforms = [word for name in _PLATFORMS for word in ("--platform", name)]
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--quiet", "--target", str(site), "--upgrade"]
    run([*pip, "--only-binary=:all:", "--implementation", "cp", "--python-version", version, *platforms, *_WHEELS])


def compile_annoy(folder: Path, root: Path, site: Path, version: str) -> None:
    """Annoy has no aarch64 wheel anywhere; portable and exact flags (see the Makefile)."""
    say("arm: cross-compiling Annoy")
    with tempfile.TemporaryDirectory(dir=folder) as temporary:
        pip = [sys.executable, "-m", "pip", "download", "--quiet", "--quiet", "--no-deps", "--no-binary=:all:"]
        run([*pip, "--no-build-isolation", "--dest", temporary, "annoy"])
        (archive,) = Path(temporary).glob("annoy-*.tar.gz")
        with tarfile.open(archive) as packed:
            packed.extractall(temporary, filter="data")
        source = Path(temporary) / archive.name.removesuffix(".tar.gz")
        (site / "annoy").mkdir(exist_ok=True)
        shutil.copy(source / "annoy" / "__init__.py", site / "annoy")
        headers = root / "usr" / "include"
        compiler = ["aarch64-linux-gnu-g++", "-O3", "-shared", "-fPIC", "-std=c++14", "-fpermissive", "-w"]
        options = ["-DANNOYLIB_MULTITHREADED_BUILD", f"-I{headers / f'python{version}'}", "-idirafter", str(headers)]
        module, library = source / "src" / "annoymodule.cc", site / "annoy" / "annoylib.so"
        run([*compiler, *options, str(module), "-o", str(library)])
        number = archive.name.removeprefix("annoy-").removesuffix(".tar.gz")
    metadata = site / f"annoy-{number}.dist-info" / "METADATA"
    metadata.parent.mkdir(exist_ok=True)
    metadata.write_text(f"Metadata-Version: 2.1\nName: annoy\nVersion: {number}\n")


def say(text: str) -> None:
    """Tell the person at the terminal at once."""
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


def versions(site: Path) -> list[str]:
    """What was installed, as "numpy 2.4"."""
    wanted = re.compile(r"(annoy|numpy|onnxruntime)-([0-9.]+)\.dist-info")
    found = (wanted.fullmatch(path.name) for path in site.glob("*.dist-info"))
    return sorted(f"{match[1]} {match[2]}" for match in found if match)


def run(command: list[str]) -> None:
    """Run a command; what it wrote is shown when it fails."""
    finished = subprocess.run(command, capture_output=True, text=True, check=False)
    if finished.returncode:
        raise SystemExit(f"{' '.join(command[:6])} ... failed:\n{finished.stdout[-2000:]}{finished.stderr[-2000:]}")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
