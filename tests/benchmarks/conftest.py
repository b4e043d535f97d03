"""The benchmarks need packages that dlv and its other tests do not."""

from __future__ import annotations

import importlib
import warnings
from importlib.util import find_spec

NEEDS = {
    "test_corpora.py": ("torch", "sklearn"),
    "test_progressive.py": ("torch", "sklearn"),
    "test_peers.py": ("blosc2", "openzl", "pcodec", "zipnn"),
}
collect_ignore = [file for file, names in NEEDS.items() if not all(map(find_spec, names))]

if find_spec("zipnn"):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # it uses what torch advises against
        importlib.import_module("zipnn")
