"""Write dlv/adapters/onnx/operators.json: what each ONNX operator takes and gives, by version.

From the schemas of the installed onnx package; dlv itself reads ONNX files without it.
Run it after an update of onnx: .venv/bin/python tools/onnx_operators.py
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import onnx
import onnx.defs

FILE = Path(__file__).parent.parent / "dlv" / "adapters" / "onnx" / "operators.json"
DOMAINS = ("", "ai.onnx.ml")
# Attributes that name the dtype of what comes out.
NAMING = ("to", "dtype", "output_datatype", "output_dtype", "stash_type")
_ELEMENTS = {"float": "float32", "double": "float64", "string": "raw:STRING"}
_ELEMENTS |= {"float8e4m3fn": "float8_e4m3", "float8e5m2": "float8_e5m2"}


def table() -> dict[str, list[list[Any]]]:
    """By operator, oldest first: since, inputs at least and at most, outputs at most, attributes
    (kind and default), what the outputs are; since alone where the operator is deprecated."""
    found: dict[str, list[list[Any]]] = {}
    for schema in onnx.defs.get_all_schemas_with_history():
        if schema.domain in DOMAINS:
            name = f"{schema.domain}::{schema.name}" if schema.domain else schema.name
            found.setdefault(name, []).append(_row(schema))
    return {name: sorted(rows, key=lambda row: row[0]) for name, rows in sorted(found.items())}


def _row(schema: Any) -> list[Any]:
    if schema.deprecated:
        return [schema.since_version]
    attributes = {name: _attribute(schema.attributes[name]) for name in sorted(schema.attributes)}
    results = [_result(schema, output.type_str) for output in schema.outputs]
    most_in, most_out = (min(n, 1 << 30) for n in (schema.max_input, schema.max_output))
    return [schema.since_version, schema.min_input, most_in, most_out, attributes, results]


def _attribute(attribute: Any) -> list[Any]:
    kind = attribute.type.name.lower()
    default = attribute.default_value
    if not default.name:
        return [kind]
    value = onnx.helper.get_attribute_value(default)
    if isinstance(value, bytes):
        value = value.decode()
    elif isinstance(value, list):
        value = [item.decode() if isinstance(item, bytes) else item for item in value]
    plain = isinstance(value, (int, float, str, list))
    return [kind, value] if plain else [kind]


def _result(schema: Any, word: str) -> str:
    """What tells the dtype, in this order: `@to` an attribute, `=0` an input, a dtype, `?` none."""
    constraints = {each.type_param_str: each.allowed_type_strs for each in schema.type_constraints}
    allowed = constraints.get(word, [word])
    if len(allowed) == 1:
        return _dtype(allowed[0])
    # Of several tensors in one list each may be of another dtype.
    like = [
        f"={place}"
        for place, item in enumerate(schema.inputs)
        if item.type_str == word and item.is_homogeneous
    ]
    told = []
    for name in NAMING if not like or schema.name == "QuantizeLinear" else ():
        if name in schema.attributes:
            default = schema.attributes[name].default_value
            told.append(f"@{name}")
            told += [_by_number(default.i)] if default.name and default.i else []
    like += ["=0"] if told == ["@dtype"] and schema.inputs else []
    return "|".join([*told, *like]) or "?"


def _by_number(number: int) -> str:
    return _element(onnx.TensorProto.DataType.Name(number).lower())


def _dtype(word: str) -> str:
    inner = word.removeprefix("tensor(").removesuffix(")")
    return _element(inner) if word.startswith("tensor(") and "(" not in inner else word


def _element(word: str) -> str:
    return _ELEMENTS.get(word, word)


def text() -> str:
    rows = (f"{json.dumps(name)}: {json.dumps(forms)}" for name, forms in table().items())
    return "{\n" + ",\n".join(rows) + "\n}\n"


if __name__ == "__main__":
    FILE.write_text(text(), encoding="utf-8")
