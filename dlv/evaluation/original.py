"""An ONNX file as it is, run by onnxruntime or by onnx: what dlv's reading is held against."""

from __future__ import annotations

import importlib.util
from collections.abc import Mapping, Sequence
from typing import Any

from dlv.adapters.engine_runs import session
from dlv.errors import require
from dlv.evaluation.engines import threads
from dlv.evaluation.runtime import widened
from dlv.kinds import Array

Values = dict[str, Array]

RUNTIME, REFERENCE = "onnxruntime", "onnx"


def there() -> list[str]:
    """The packages that can run a file, the quicker one first."""
    return [name for name in (RUNTIME, REFERENCE) if importlib.util.find_spec(name) is not None]


class Original:
    """The model of a file. `asked`: names of values that are to come out beside its outputs.

    What the packages raise is of many classes; a file that they cannot run raises Exception.
    """

    def __init__(self, path: str, by: str, asked: Sequence[str] = ()) -> None:
        self._by = by
        self._run = self._of_runtime(path, asked) if by == RUNTIME else self._of_onnx(path, asked)

    def __call__(self, inputs: Mapping[str, Array]) -> Values:
        return {k: v for k, v in self._run(inputs).items() if v is not None}

    def _of_runtime(self, path: str, asked: Sequence[str]) -> Any:
        runtime = require("onnxruntime", "onnxruntime")
        model: Any = path if not asked else _with_outputs(path, asked).SerializeToString()
        made = session(runtime, model, threads())
        names = [item.name for item in made.get_outputs()]
        types = [item.type for item in made.get_outputs()]

        def run(inputs: Mapping[str, Array]) -> Values:
            return dict(zip(names, widened(made.run(None, dict(inputs)), types), strict=True))

        return run

    def _of_onnx(self, path: str, asked: Sequence[str]) -> Any:
        reference = require("onnx.reference", "onnx")
        made = reference.ReferenceEvaluator(_with_outputs(path, asked))

        def run(inputs: Mapping[str, Array]) -> Values:
            return dict(zip(made.output_names, made.run(None, dict(inputs)), strict=True))

        return run


def _with_outputs(path: str, asked: Sequence[str]) -> Any:
    onnx: Any = require("onnx", "onnx")
    model = onnx.load(path)
    there = {item.name for item in model.graph.output}
    for name in asked:
        if name not in there:
            model.graph.output.append(onnx.ValueInfoProto(name=name))
    return model
