"""Manifests, packs, event files, queries, settings and names that were made to do harm; and how
many hostile files there are in all."""

from __future__ import annotations

import json
import subprocess
import sys
from collections import Counter
from typing import Any

import pytest

from tests.hostile import caffe_files, corpus, formats, gguf_files, onnx_files, pickles
from tests.hostile.harness import MOST_MEBIBYTES, MOST_SECONDS, ROOT

pytestmark = pytest.mark.hostile

PARSERS = {"manifest", "fact", "bounds", "network", "pack", "query", "config", "name", "events"}


@pytest.fixture(scope="module")
def results() -> dict[tuple[str, str], dict[str, Any]]:
    command = [sys.executable, "-m", "tests.hostile.formats"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    found = [json.loads(line) for line in done.stdout.splitlines()]
    return {(each["target"], each["name"]): each for each in found}


@pytest.mark.parametrize("target", sorted(PARSERS))
def test_ends_well(results: dict[tuple[str, str], dict[str, Any]], target: str) -> None:
    files = formats.HOSTILE[target]
    assert len(files) >= 9
    for name in files:
        result = results[target, name]
        assert result["kind"] not in ("crash", "internal"), (target, name, result["text"])
        assert result["kind"] is not None or target in formats.QUIET, (target, name)
        assert result["mebibytes"] < MOST_MEBIBYTES, (target, name, result)
        assert result["seconds"] < MOST_SECONDS, (target, name, result)


def test_there_are_enough() -> None:
    found = Counter(name.rpartition(".")[2] for name in [*corpus.CORPUS, *caffe_files.HOSTILE])
    found["pickle"] = len(pickles.HOSTILE)
    found["gguf"] = len(gguf_files.HOSTILE)
    found["onnx"] = len(onnx_files.HOSTILE) + len(onnx_files.FOLDERS)
    found.update({target: len(files) for target, files in formats.HOSTILE.items()})
    print(f"{found.total()} hostile files: {dict(found)}")
    assert found.total() >= 500
    for parser in ("safetensors", "npy", "npz", "pickle", "gguf", "onnx", "prototxt", *PARSERS):
        assert found[parser] >= 9, (parser, found)
