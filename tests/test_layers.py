"""Who may import whom: every file of dlv is read as a syntax tree and held against the table."""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

# The table. A part is a module or a package directly under dlv; a new one is one word here.
LEVELS: dict[float, str] = {
    1: "network pas events record manifest fact lanes demo_training bounds_columns own_code"
    " children holders rights warden",
    2: "metadata adapters durable change_marks ignore locks config_text paths folders arrays mounts"
    " repository_format unfinished user_files",
    3: "ballast catalogue_log quarantine repository revisions staging files config pack_files"
    " weights weight_writer snapshots catalogue environment bounds_norms live_model"
    " weight_statistics processors series_figures",
    3.2: "trials runs artifacts rounding structure reading given_data bounds curve_store"
    " network_graphs projections text_logs",
    3.3: "archiving curve_writer restart_views",
    3.36: "rebuild",
    3.38: "comparing",
    3.4: "bounding ingest frozen_curves",
    3.45: "event_logs",
    # What several verbs share.
    3.5: "conditions delivery derive imported_runs inventory lineage mlflow_record reachable"
    " text_changes working",
    3.7: "approximate_files carrying collecting repairing matrix_pairs evaluation",
    3.8: "draft",
    4: "board add commit archive explain diff describe evaluate activations check status history"
    " checkout tags remove collect intake intake_mlflow intake_tensorboard transfer curves stats"
    " doctor demo named_boards"
    " show undo version copying lossy repair logged_curves restoring",
    5: "training hub report dql views",
    6: "commands api integrations",
}
# Beyond what its level may: a part that was cut in two, or a library that loads slowly.
EXTRA = {
    "network": "lazy",
    "manifest": "record",
    "holders": "children",
    "locks": "holders lazy",
    "metadata": "lazy locks",
    "catalogue": "lazy",
    "structure": "lazy",
    "copying": "lazy",
    "draft": "lazy",
    "environment": "lazy",
    "delivery": "working",
    "fact": "manifest record",
    "paths": "durable",
    "unfinished": "ignore",
    "user_files": "durable paths lazy unfinished",
    "files": "lazy",
    "adapters": "lazy own_code user_files children",
    "live_model": "lazy",
    "version": "lazy evaluate logged_curves",
    "evaluation": "lazy",
    "staging": "lazy",
    "durable": "lazy rights",
    "repository": "lazy series_figures",
    "repository_format": "durable",
    "series_figures": "catalogue weights",
    "change_marks": "durable lazy",
    "config": "lazy",
    "config_text": "lazy user_files",
    "collect": "restoring",
    "repair": "check",
    "quarantine": "repository",
    "ballast": "repository",
    "arrays": "adapters",
    "demo": "add commit",
    "named_boards": "board",
    "add": "lazy",
    "weight_writer": "pack_files",
}
PARTS = {part: level for level, parts in LEVELS.items() for part in parts.split()}


def below(level: float) -> set[str]:
    return {part for part, at in PARTS.items() if at < level}


BASE = {"errors", "canonical"}
# What a part may import besides itself (a package) and BASE.
ALLOWED: dict[str, set[str]] = {
    **{part: set() for part, level in PARTS.items() if level == 1},
    **{part: {"network", "manifest", "fact"} for part, level in PARTS.items() if level == 2},
    **{part: below(level) for part, level in PARTS.items() if 3 <= level <= 4},
    "training": {"network", "durable", "lazy", "own_code", "processors", "children"},
    "hub": below(5),
    "report": below(5) | {"lazy"},
    # Outcomes of queries are laid out too.
    "views": below(5) | {"output", "table", "dql", "training", "lazy"},
    "dql": below(5) | {"training", "lazy"},
    "commands": below(6) | {"output", "table", "screen", "prompt", "lazy", "completion"},
    "api": below(6) | {"lazy"},
    "integrations": {"api"},
    "cli": {"commands", "lazy", "completion"},
    "output": {"table", "carets", "lazy", "children"},
    "carets": {"table"},
    "table": set(),
    "screen": set(),
    "prompt": set(),
    "lazy": set(),
    "completion": {"config"},
    "errors": set(),
    "canonical": set(),
    "__init__": {"api"},
    "__main__": {"cli"},
}


def allowed(part: str) -> set[str]:
    return ALLOWED.get(part, set()) | set(EXTRA.get(part, "").split()) | (BASE - {part})


# Files that the commands and cli share; no command imports another.
SHARED_BY_COMMANDS = {
    "dlv.commands.options",
    "dlv.commands.invocation",
    "dlv.commands.planning",
    "dlv.commands.asking",
    "dlv.commands.evaluating",
    "dlv.commands.query_text",
    "dlv.commands.watching",
}

# Third-party names and the only places that may import them (a folder ends with a slash).
HOMES = {
    "blake3": "canonical.py",
    "PIL": "adapters/data_images.py",
    "click": "cli.py completion.py commands/",
    "git": "files.py",
    "gitdb": "files.py",
    "lark": "dql/table_making.py",
    "zstandard": "pas/coders/",
    "rich": "screen.py",
    "prompt_toolkit": "prompt.py",  # rich, which screen.py loads, is not needed beside it
    "pandas": "dql/answers.py logged_curves.py",
    "yaml": "adapters/settings.py",
    "networkx": "network/edit.py report/dag.py",
    "starlette": "hub/",
    "sqlalchemy": "hub/",
    "numpy": "",
    "numba": "pas/coders/compiled.py pas/solvers/compiled.py",
    "torch": "arrays.py adapters/ network/torch_types.py training/ integrations/",
    "onnx": "adapters/ evaluation/original.py",
    "h5py": "adapters/",
    "lightning": "integrations/lightning.py",
    "pytorch_lightning": "integrations/lightning.py",
    "transformers": "integrations/transformers.py",
    "keras": "integrations/keras.py adapters/keras_check/",
    "onnxruntime": "evaluation/engines.py evaluation/original.py adapters/engine_runs.py",
    "matplotlib": "report/picture.py",
    "optuna": "training/sampling.py",
    "ray": "training/ray_pool.py",
    "tensorboard": "events/",
}
# No numpy in these, nor in anything that they import when they are loaded.
WITHOUT_NUMPY = (
    "cli.py errors.py config.py repository.py revisions.py staging.py status.py history.py"
    " output.py table.py lazy.py completion.py metadata/ commands/ network/graph.py"
    " network/selector.py network/templates.py network/edit.py adapters/detect.py"
    " dql/ast.py dql/parser.py dql/names.py dql/rewrite.py dql/plan.py"
)
STANDARD_LIBRARY_ONLY = "metadata/ network/graph.py output.py table.py lazy.py config.py"
MAY_IMPORT_BY_NAME = "__init__.py cli.py lazy.py errors.py"
FORBIDDEN_NAMES = {"util", "utils", "common", "misc", "manager", "managers", "helper", "helpers"}
MOST_LINES, MOST_LINES_OF_A_COMMAND = 800, 150


@dataclass
class Module:
    path: str  # relative to the package, with slashes
    name: str
    tree: ast.Module
    lines: int
    size: int
    now: set[str] = field(default_factory=set)  # imported when this module is loaded
    later: set[str] = field(default_factory=set)  # lazy(...), require(...), TYPE_CHECKING

    @property
    def part(self) -> str:
        return self.path.split("/")[0].removesuffix(".py")


def within(path: str, places: str) -> bool:
    return any(path == p or (p.endswith("/") and path.startswith(p)) for p in places.split())


def read(root: Path) -> dict[str, Module]:
    modules = {}
    for file in sorted(root.rglob("*.py")):
        path = file.relative_to(root).as_posix()
        words = ["dlv", *path.removesuffix(".py").split("/")]
        name = ".".join(words[:-1] if words[-1] == "__init__" else words)
        text = file.read_text(encoding="utf-8")
        modules[name] = Module(
            path, name, ast.parse(text, path), len(text.splitlines()), len(text.strip())
        )
    return modules


def faults(root: Path) -> list[str]:
    """Everything in the tree under `root` that breaks a rule, one line each."""
    modules = read(root)
    found = [text for module in modules.values() for text in own_faults(module, modules)]
    found += [text for module in modules.values() for text in edge_faults(module, modules)]
    found += [text for module in modules.values() for text in numpy_faults(module, modules)]
    return found + cycle_faults(modules)


def own_faults(module: Module, modules: dict[str, Module]) -> Iterator[str]:
    """Rules about one file; its edges are noted on the way."""
    most = MOST_LINES_OF_A_COMMAND if module.path.startswith("commands/") else MOST_LINES
    if module.lines > most:
        yield f"{module.path}: {module.lines} lines, the limit is {most}"
    if set(module.path.removesuffix(".py").split("/")) & FORBIDDEN_NAMES:
        yield f"{module.path}: a name that says nothing"
    if module.path.endswith("/__init__.py") and module.size:
        yield f"{module.path}: not empty"
    if module.part not in ALLOWED:
        yield f"{module.path}: `{module.part}` is not in the table of levels"
    yield from walk(module, modules, module.tree, inside=False, typing=False)


def walk(
    module: Module, modules: dict[str, Module], node: ast.AST, *, inside: bool, typing: bool
) -> Iterator[str]:
    at = f"{module.path}:{getattr(node, 'lineno', 0)}"
    if isinstance(node, (ast.Import, ast.ImportFrom)):
        if inside:
            yield f"{at}: import inside a function"
        if isinstance(node, ast.ImportFrom) and node.level:
            yield f"{at}: relative import"
        elif isinstance(node, ast.ImportFrom) and node.module == "dlv":
            yield f"{at}: from dlv import"
        (module.later if typing else module.now).update(imported(node, modules))
    elif isinstance(node, ast.Call):
        called = node.func
        name = called.id if isinstance(called, ast.Name) else getattr(called, "attr", "")
        if name in ("import_module", "__import__") and not within(module.path, MAY_IMPORT_BY_NAME):
            yield f"{at}: {name}"
        if name in ("lazy", "require") and module.part not in ("lazy", "errors"):
            given = node.args[0] if node.args else None
            if isinstance(given, ast.Constant) and isinstance(given.value, str):
                module.later.add(given.value)
            else:
                yield f"{at}: {name} of something else than a text"
    in_function = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)
    inside = inside or isinstance(node, in_function)
    for name, value in ast.iter_fields(node):
        for child in value if isinstance(value, list) else [value]:
            if isinstance(child, ast.AST):
                guarded = isinstance(node, ast.If) and name == "body" and is_guard(node.test)
                yield from walk(module, modules, child, inside=inside, typing=typing or guarded)


def is_guard(test: ast.expr) -> bool:
    return "TYPE_CHECKING" in (getattr(test, "id", ""), getattr(test, "attr", ""))


def imported(node: ast.Import | ast.ImportFrom, modules: dict[str, Module]) -> set[str]:
    if isinstance(node, ast.Import):
        return {alias.name for alias in node.names}
    base = node.module or ""
    names = {f"{base}.{alias.name}" for alias in node.names}
    return (names & set(modules)) or {base}


def edge_faults(module: Module, modules: dict[str, Module]) -> Iterator[str]:
    for target in sorted(module.now | module.later):
        top, _, rest = target.partition(".")
        if top != "dlv":
            yield from third_party_faults(module, top)
            continue
        if target not in modules:
            yield f"{module.path}: imports {target}, which does not exist"
            continue
        part = rest.split(".")[0]
        own = part == module.part
        if module.part in ("commands", "cli") and part == "commands":
            if target not in SHARED_BY_COMMANDS:
                yield f"{module.path}: imports the command {target}"
        elif part and not own and part not in allowed(module.part):
            yield f"{module.path}: {module.part} may not import {part}"


def third_party_faults(module: Module, top: str) -> Iterator[str]:
    if top in sys.stdlib_module_names:
        return
    if within(module.path, STANDARD_LIBRARY_ONLY):
        yield f"{module.path}: {top}, where only the standard library is allowed"
    elif top not in HOMES:
        yield f"{module.path}: {top} has no home in the table"
    elif HOMES[top] and not within(module.path, HOMES[top]):
        yield f"{module.path}: {top} belongs in {HOMES[top]}"


def numpy_faults(module: Module, modules: dict[str, Module]) -> Iterator[str]:
    if not within(module.path, WITHOUT_NUMPY):
        return
    reached, waiting = {module.name: ""}, [module.name]
    while waiting:
        name = waiting.pop()
        for target in sorted(modules[name].now):
            if target.split(".")[0] == "numpy":
                yield f"{module.path}: loads numpy through {name}"
                return
            if target in modules and target not in reached:
                reached[target] = name
                waiting.append(target)


def cycle_faults(modules: dict[str, Module]) -> list[str]:
    """Modules that can be reached from themselves; edges that come later count too."""
    edges = {name: {t for t in m.now | m.later if t in modules} for name, m in modules.items()}
    found = []
    for start in edges:
        reached: set[str] = set()
        waiting = list(edges[start])
        while waiting:
            name = waiting.pop()
            if name not in reached:
                reached.add(name)
                waiting += edges[name]
        if start in reached:
            found.append(f"{modules[start].path}: part of a cycle")
    return found


ROOT = Path(__file__).resolve().parent.parent / "dlv"


def test_the_tree_keeps_its_rules() -> None:
    assert faults(ROOT) == []


def test_every_module_was_read() -> None:
    names = read(ROOT)
    assert {"dlv.cli", "dlv.errors", "dlv.commands.options"} <= set(names)
    assert len(names) == len(list(ROOT.rglob("*.py")))


GOOD = {
    "__init__.py": "import importlib\n",
    "errors.py": "import importlib\nimportlib.import_module('x')\n",
    "lazy.py": "",
    "canonical.py": "import dlv.errors\nfrom blake3 import blake3\n",
    "pas/__init__.py": "",
    "pas/packs.py": "import numpy as np\nfrom dlv.errors import Damaged\nimport dlv.canonical\n",
    "network/__init__.py": "",
    "network/graph.py": "import json\n",
    "metadata/__init__.py": "",
    "metadata/versions.py": "import sqlite3\nimport dlv.network.graph\n",
    "adapters/__init__.py": "",
    "adapters/torch.py": "from dlv.errors import require\nrequire('torch', 'torch')\n",
    "repository.py": "import dlv.metadata.versions\n",
    "revisions.py": "from dlv.metadata import versions\n",
    "diff.py": "import dlv.pas.packs\nimport dlv.repository\n",
    "status.py": "import dlv.repository\n",
    "output.py": "import dlv.table\n",
    "table.py": "",
    "commands/__init__.py": "",
    "commands/options.py": "import click\n",
    "commands/diff.py": "import dlv.commands.options\nimport dlv.lazy\nlazy('dlv.diff')\n",
    "commands/status.py": "",
    "cli.py": "import dlv.commands.options\nimport click\n",
}


def plant(root: Path, files: dict[str, str]) -> Path:
    for path, text in files.items():
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_text(text)
    return root


def test_a_good_tree_has_no_faults(tmp_path: Path) -> None:
    assert faults(plant(tmp_path, GOOD)) == []


TYPED = "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    "


@pytest.mark.parametrize(
    ("path", "text", "expected"),
    [
        ("pas/packs.py", "import dlv.repository\n", "pas may not import repository"),
        ("pas/packs.py", "import dlv.network.graph\n", "pas may not import network"),
        ("pas/packs.py", f"{TYPED}import dlv.repository\n", "pas may not import repository"),
        ("pas/packs.py", "from dlv.lazy import lazy\n", "pas may not import lazy"),
        ("metadata/versions.py", "import dlv.pas.packs\n", "metadata may not import pas"),
        ("repository.py", "import dlv.revisions\n", "repository may not import revisions"),
        ("diff.py", "from dlv.status import x\n", "diff may not import status"),
        ("diff.py", "import dlv.output\n", "diff may not import output"),
        ("output.py", "import dlv.repository\n", "output may not import repository"),
        ("commands/diff.py", "import dlv.commands.status\n", "imports the command"),
        ("cli.py", "import dlv.commands.status\n", "imports the command"),
        ("cli.py", "import dlv.diff\n", "cli may not import diff"),
        ("cli.py", "from dlv.lazy import lazy\nlazy('dlv.diff')\n", "cli may not import diff"),
        ("lazy.py", "import dlv.diff\n", "lazy may not import diff"),
        ("diff.py", "from .pas import packs\n", "relative import"),
        ("diff.py", "from dlv import pas\n", "from dlv import"),
        ("diff.py", "def f():\n    import dlv.pas.packs\n", "import inside a function"),
        ("diff.py", "async def f():\n    import json\n", "import inside a function"),
        (
            "diff.py",
            "class A:\n    def f(self):\n        from json import x\n",
            "inside a function",
        ),
        ("diff.py", "import importlib\nimportlib.import_module('y')\n", "import_module"),
        ("diff.py", "from importlib import import_module\nimport_module('y')\n", "import_module"),
        ("diff.py", "__import__('y')\n", "__import__"),
        ("diff.py", "import dlv.nowhere\n", "does not exist"),
        ("commands/diff.py", "from dlv.lazy import lazy\nlazy('dlv.dif')\n", "does not exist"),
        (
            "commands/diff.py",
            "from dlv.lazy import lazy\nlazy(name)\n",
            "something else than a text",
        ),
        ("pas/packs.py", "import zstandard\n", "zstandard belongs in pas/coders/"),
        ("diff.py", "from rich.table import Table\n", "rich belongs in screen.py"),
        ("diff.py", "import git\n", "git belongs in files.py"),
        ("diff.py", "from dlv.errors import require\nrequire('torch', 't')\n", "torch belongs in"),
        ("diff.py", "import polars\n", "polars has no home"),
        ("metadata/versions.py", "import blake3\n", "only the standard library"),
        ("network/graph.py", "import numpy\n", "only the standard library"),
        ("status.py", "import numpy\n", "status.py: loads numpy through dlv.status"),
        ("status.py", "import dlv.pas.packs\n", "status.py: loads numpy through dlv.pas.packs"),
        ("commands/diff.py", "import dlv.diff\n", "loads numpy through dlv.pas.packs"),
        ("pas/read.py", "import dlv.pas.packs\n", "read.py: part of a cycle"),
        ("pas/__init__.py", "x = 1\n", "not empty"),
        ("pas/utils.py", "", "a name that says nothing"),
        ("helpers/x.py", "", "a name that says nothing"),
        ("strange.py", "", "`strange` is not in the table"),
        ("diff.py", "x = 1\n" * 801, "801 lines"),
        ("commands/diff.py", "x = 1\n" * 151, "151 lines"),
    ],
)
def test_an_injected_fault_is_found(tmp_path: Path, path: str, text: str, expected: str) -> None:
    root = plant(tmp_path, GOOD)
    if "cycle" in expected:
        plant(root, {"pas/packs.py": f"{TYPED}import dlv.pas.read\n"})
    plant(root, {path: text})
    found = faults(root)
    assert any(expected in fault for fault in found), found
