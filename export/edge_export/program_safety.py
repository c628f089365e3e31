"""Code hidden in a `torch.export` archive, looked for before torch opens it.

`torch.export.load` is no safe loader: it falls back to a full unpickling of the sample inputs, of pickled weights
and of constants, it evaluates size expressions as Python (sympy), and it resolves operator names such as
`torch.os.system`. So the archive is read here first, and only one that holds plain tensors, plain size expressions
and aten operators goes on.
"""

import io
import json
import re
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch

from edge_sdk.errors import ExportError

_OPERATOR = re.compile(r"torch\.ops\.(aten|prims|prim|higher_order)\.\w+(\.\w+)*|_operator\.\w+|torch\.(_)?sym_\w+")
_EXPRESSION = re.compile(r"[\w\s+\-*/(),<>=&|~.]*")
_QUOTED_NAME = re.compile(r"Symbol\('[A-Za-z]\w*'")
_FUNCTIONS = frozenset(
    (
        *("Symbol", "Integer", "Float", "Rational", "Add", "Mul", "Pow", "Max", "Min", "Mod", "PythonMod", "FloorDiv"),
        *("CeilDiv", "CleanDiv", "Eq", "Ne", "Lt", "Le", "Gt", "Ge", "And", "Or", "Not", "Equality", "Unequality"),
        *("StrictLessThan", "LessThan", "StrictGreaterThan", "GreaterThan", "Piecewise", "ExprCondPair", "TruncToInt"),
        *("FloorToInt", "CeilToInt", "ToFloat", "IntTrueDiv", "FloatTrueDiv", "floor", "ceiling", "Abs", "Identity"),
    )
)


def refuse_code(path: Path) -> None:
    """Read an archive without running any of it.

    Raises:
        ExportError: it holds a pickled object, a size expression that is not arithmetic, or an operator outside aten.
    """
    try:
        with zipfile.ZipFile(path) as archive:
            names = archive.namelist()
            documents = [json.loads(archive.read(name)) for name in names if name.endswith(".json")]
            pickled = {
                str(entry["path_name"])
                for document in documents
                for entry in _dicts(document)
                if entry.get("use_pickle")
            }
            for document in documents:
                for entry in _dicts(document):
                    _refuse_entry(path, entry)
            for name in names:
                if name.endswith((".pt", ".pkl")) or name.rpartition("/")[2] in pickled:
                    _refuse_pickle(path, name, archive.read(name))
    except (zipfile.BadZipFile, ValueError, KeyError, OSError, RecursionError) as error:
        raise ExportError(f"{path}: damaged torch.export archive ({error}); copy or save it again") from error


def _refuse_pickle(path: Path, name: str, content: bytes) -> None:
    if not content:
        return
    try:
        torch.load(io.BytesIO(content), weights_only=True, map_location="cpu")
    except Exception as error:  # the safe loader raises whatever it stumbles over
        raise ExportError(
            f"{path}: {name} holds a pickled object, and loading it would run its code; save the program without it, "
            "or export the state_dict with --model"
        ) from error


def _refuse_entry(path: Path, entry: dict[str, Any]) -> None:
    target = entry.get("target")
    if isinstance(target, str) and "inputs" in entry and not _OPERATOR.fullmatch(target):
        raise ExportError(
            f"{path}: operator {target[:80]} is none of torch.ops.aten; export the state_dict with --model"
        )
    for key, text in entry.items():
        if key.startswith("expr") and isinstance(text, str) and not is_arithmetic(text):
            raise ExportError(
                f"{path}: size expression {text[:80]!r} is not arithmetic; this file is not to be trusted"
            )


def is_arithmetic(text: str) -> bool:
    """Whether a size expression only names symbols, numbers and known functions: it will be evaluated as Python."""
    text = _QUOTED_NAME.sub("Symbol(0", text)
    if not _EXPRESSION.fullmatch(text) or "__" in text or re.search(r"\.\s*[A-Za-z_]", text):
        return False
    return set(re.findall(r"([A-Za-z_]\w*)\s*\(", text)) <= _FUNCTIONS and not re.search(r"\)\s*\(", text)


def _dicts(value: Any) -> Iterator[dict[str, Any]]:
    """Every object of a JSON document, itself included."""
    if isinstance(value, dict):
        yield value
        for item in value.values():
            yield from _dicts(item)
    elif isinstance(value, list):
        for item in value:
            yield from _dicts(item)
