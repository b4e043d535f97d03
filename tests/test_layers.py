"""Who may import whom: every file of dlv is read as a syntax tree and held against the table."""

from __future__ import annotations

import ast
import sys
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

# The floors, from the ground up. A room is a folder directly under dlv, or a module there.
FLOORS = (
    "errors canonical config dataclass dtypes kinds memory own_code processors shown",
    "disk objects terminal pas network events",
    "metadata adapters",
    "repository weights",
    "evaluation curves training recovery",
    "versions archiving report",
    "dql intake upkeep hub demo",
    "api views ui",
    "commands integrations",
    "cli __main__ __init__",
)
# What a room may import beside the floors below it, each with its reason.
EXCEPTIONS = {
    ("canonical", "errors"): "bad JSON is an error for the user",
    ("own_code", "errors"): "the user's code fails with a message",
    ("config", "errors"): "a wrong value is an error for the user",
    ("kinds", "dataclass"): "records",
    ("config", "dataclass"): "records",
    ("config", "disk"): "settings are a file, written under its lock",
    ("terminal", "disk"): "the pager is a process that ends with dlv",
    ("api", "runs"): "a run is part of the Python API, in a file of its own",
    ("shown", "errors"): "pandas may be missing",
    ("hub", "dql"): "a hub answers conditions of DQL on its cards",
    ("ui", "views"): "pages show what the terminal shows",
    ("api", "ui"): "what notebooks show of a repository",
    ("__main__", "cli"): "`python -m dlv`",
}
# Rooms that need few of the rooms below them, and are held to these.
NARROW = {
    "metadata": "network objects disk",
    "training": "network disk metadata repository",
    "integrations": "api",
    "cli": "commands terminal",
}
GROUND = set(FLOORS[0].split())
FLOOR_OF = {room: floor for floor, rooms in enumerate(FLOORS) for room in rooms.split()}
FLOOR_OF["runs"] = FLOOR_OF["api"]


def allowed(room: str) -> set[str]:
    below = {other for other, floor in FLOOR_OF.items() if floor < FLOOR_OF[room]}
    if room in NARROW:
        below = GROUND | set(NARROW[room].split())
    return below | {other for one, other in EXCEPTIONS if one == room}


# Files that the commands and cli share; no command imports another.
SHARED_BY_COMMANDS = {
    "dlv.commands.shared.options",
    "dlv.commands.shared.invocation",
    "dlv.commands.shared.planning",
    "dlv.commands.shared.asking",
    "dlv.commands.shared.topics",
    "dlv.commands.shared.pages",
    "dlv.commands.shared.hub_place",
    "dlv.commands.shared.parameters",
    "dlv.commands.shared.reporting",
}

# Third-party names and the only places that may import them (a folder ends with a slash).
HOMES = {
    "blake3": "canonical.py",
    "PIL": "adapters/data/settings.py",
    "click": "cli.py terminal/completion.py commands/",
    "git": "repository/git_files.py",
    "gitdb": "repository/git_files.py",
    "lark": "dql/words/tables.py",
    "pcodec": "pas/coders/",
    "zstandard": "pas/coders/",
    "rich": "terminal/screen.py",
    "prompt_toolkit": "terminal/prompt.py",  # rich, which screen.py loads, is not needed beside it
    "pandas": "shown.py curves/logged.py",
    "yaml": "adapters/settings.py",
    "networkx": "network/edits/edit.py",
    "starlette": "hub/server/ ui/",
    "uvicorn": "ui/serving.py hub/server/",
    "h11": "hub/server/protocol.py",
    "prometheus_client": "hub/server/metrics.py",
    "anyio": "ui/serving.py",
    "jinja2": "ui/shell.py ui/serving.py",
    "pygments": "ui/pages.py ui/serving.py",
    "sqlalchemy": "hub/ ui/hub/ commands/shared/hub_place.py",
    "numpy": "",
    "numba": "pas/coders/compiled.py pas/solvers/compiled.py",
    "torch": "weights/arrays.py adapters/ network/torch/types.py training/ integrations/",
    "onnx": "adapters/ evaluation/imported.py",
    "h5py": "adapters/",
    "lightning": "integrations/lightning.py",
    "pytorch_lightning": "integrations/lightning.py",
    "transformers": "integrations/transformers.py",
    "keras": "integrations/keras.py adapters/keras/check.py",
    "onnxruntime": "evaluation/engines.py evaluation/imported.py adapters/engine_runs.py",
    "matplotlib": "report/curve_charts.py report/raster.py",
    "optuna": "training/ledger/sampling.py",
    "keyring": "hub/credentials.py",
    "obstore": "hub/stores/objects.py",
    "authlib": "hub/server/oidc.py",
    "joserfc": "hub/server/oidc.py",
    "urllib3": "hub/server/oidc.py hub/stores/web.py hub/stores/opening.py",
    "ray": "training/workers/ray_pool.py",
    "tensorboard": "events/",
}
# No numpy in these, nor in anything that they import when they are loaded.
WITHOUT_NUMPY = (
    "cli.py errors.py config.py repository/handle.py repository/revisions.py"
    " versions/add.py versions/status.py versions/history.py"
    " terminal/output.py terminal/table.py terminal/completion.py metadata/ commands/"
    " network/graph.py network/selector.py network/templates.py network/edits/edit.py"
    " adapters/detect.py dql/words/ast.py dql/words/parser.py dql/bind/queries.py"
    " dql/bind/rewrite.py"
)
STANDARD_LIBRARY_ONLY = "metadata/ network/graph.py terminal/output.py terminal/table.py config.py"
MAY_IMPORT_BY_NAME = "__init__.py cli.py errors.py adapters/registry.py commands/shared/options.py"
FORBIDDEN_NAMES = {"util", "utils", "common", "misc", "manager", "managers", "helper", "helpers"}
MOST_LINES, MOST_LINES_OF_A_COMMAND, DOOR_PLATE, MOST_FILES = 800, 170, 10, 30


@dataclass
class Module:
    path: str  # relative to the package, with slashes
    name: str
    tree: ast.Module
    lines: int
    size: int
    now: set[str] = field(default_factory=set)  # imported when this module is loaded
    later: set[str] = field(default_factory=set)  # in a function, by require, for types alone
    strange: list[str] = field(default_factory=list)  # ways to import that are not allowed

    @property
    def part(self) -> str:
        return self.path.split("/")[0].removesuffix(".py")


def within(path: str, places: str) -> bool:
    return any(path == p or (p.endswith("/") and path.startswith(p)) for p in places.split())


def read(root: Path) -> dict[str, Module]:
    """Every module under `root` with what it imports."""
    modules: dict[str, Module] = {}
    for file in sorted(root.rglob("*.py")):
        path = file.relative_to(root).as_posix()
        words = ["dlv", *path.removesuffix(".py").split("/")]
        name = ".".join(words[:-1] if words[-1] == "__init__" else words)
        text = file.read_text(encoding="utf-8")
        modules[name] = Module(
            path, name, ast.parse(text, path), len(text.splitlines()), len(text.strip())
        )
    for module in modules.values():
        module.strange += walk(module, modules, module.tree, inside=False, typing=False)
    return modules


def faults(root: Path, modules: dict[str, Module] | None = None) -> list[str]:
    """Everything in the tree under `root` that breaks a rule, one line each."""
    modules = modules or read(root)
    found = [text for module in modules.values() for text in own_faults(module)]
    found += [text for module in modules.values() for text in edge_faults(module, modules)]
    found += [text for module in modules.values() for text in numpy_faults(module, modules)]
    return found + cycle_faults(modules) + crowded(root)


def crowded(root: Path) -> list[str]:
    """Folders in which nobody finds anything: many files, and no inner rooms."""
    folders = [root, *(path for path in root.rglob("*") if path.is_dir())]
    counts = {path: len(list(path.glob("*.py"))) for path in folders}
    return [
        f"{path.name}: {count} files and no inner room"
        for path, count in counts.items()
        if count > MOST_FILES and not any(path.glob("*/*.py"))
    ]


def arrows(modules: dict[str, Module]) -> dict[tuple[str, str], int]:
    """How many imports lead from room to room, the ground left out."""
    pairs = Counter(
        (module.part, target.split(".")[1])
        for module in modules.values()
        for target in module.now | module.later
        if target.startswith("dlv.")
    )
    return {(a, b): n for (a, b), n in pairs.items() if a != b and b not in GROUND}


def own_faults(module: Module) -> Iterator[str]:
    """Rules about one file."""
    most = MOST_LINES_OF_A_COMMAND if is_command(module.path) else MOST_LINES
    if module.lines > most:
        yield f"{module.path}: {module.lines} lines, the limit is {most}"
    if set(module.path.removesuffix(".py").split("/")) & FORBIDDEN_NAMES:
        yield f"{module.path}: a name that is empty"
    if module.path.endswith("/__init__.py") and not only_a_docstring(module.tree):
        yield f"{module.path}: more than a docstring of at most {DOOR_PLATE} lines"
    if module.part not in FLOOR_OF:
        yield f"{module.path}: `{module.part}` is on no floor"
    yield from module.strange


def is_command(path: str) -> bool:
    return path.startswith("commands/") and path.count("/") == 1


def only_a_docstring(tree: ast.Module) -> bool:
    """Whether a room's `__init__.py` is empty or says what lives there, and no more."""
    words = ast.get_docstring(tree) or ""
    return len(tree.body) <= 1 and bool(words or not tree.body) and words.count("\n") < DOOR_PLATE


def walk(
    module: Module, modules: dict[str, Module], node: ast.AST, *, inside: bool, typing: bool
) -> Iterator[str]:
    at = f"{module.path}:{getattr(node, 'lineno', 0)}"
    if isinstance(node, (ast.Import, ast.ImportFrom)):
        if isinstance(node, ast.ImportFrom) and node.level:
            yield f"{at}: relative import"
        elif isinstance(node, ast.ImportFrom) and node.module == "dlv":
            yield f"{at}: from dlv import"
        (module.later if typing or inside else module.now).update(imported(node, modules))
    elif isinstance(node, ast.Call):
        called = node.func
        name = called.id if isinstance(called, ast.Name) else getattr(called, "attr", "")
        if name in ("import_module", "__import__") and not within(module.path, MAY_IMPORT_BY_NAME):
            yield f"{at}: {name}"
        if name == "require" and module.part != "errors":
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


@pytest.fixture(scope="module")
def modules() -> dict[str, Module]:
    return read(ROOT)


def test_the_tree_keeps_its_rules(modules: dict[str, Module]) -> None:
    assert faults(ROOT, modules) == []


def test_every_module_was_read(modules: dict[str, Module]) -> None:
    assert {"dlv.cli", "dlv.errors", "dlv.commands.shared.options"} <= set(modules)
    assert len(modules) == len(list(ROOT.rglob("*.py")))


GOOD = {
    "__init__.py": "import importlib\n",
    "errors.py": "import importlib\nimportlib.import_module('x')\n",
    "canonical.py": "import dlv.errors\nfrom blake3 import blake3\n",
    "pas/__init__.py": "",
    "pas/packs.py": "import numpy as np\nfrom dlv.errors import Damaged\nimport dlv.canonical\n",
    "network/__init__.py": '"""What lives here."""\n',
    "network/graph.py": "import json\n",
    "metadata/__init__.py": "",
    "metadata/versions.py": "import sqlite3\nimport dlv.network.graph\n",
    "adapters/__init__.py": "",
    "adapters/torch.py": "from dlv.errors import require\nrequire('torch', 'torch')\n",
    "repository/__init__.py": "",
    "repository/handle.py": "import dlv.metadata.versions\n",
    "versions/__init__.py": "",
    "versions/diff.py": "import dlv.pas.packs\nimport dlv.repository.handle\n",
    "versions/status.py": "import dlv.repository.handle\n",
    "archiving/__init__.py": "",
    "archiving/archive.py": "def f():\n    import dlv.pas.packs\n",
    "terminal/__init__.py": "",
    "terminal/output.py": "import dlv.terminal.table\n",
    "terminal/table.py": "",
    "commands/__init__.py": "",
    "commands/shared/__init__.py": "",
    "commands/shared/options.py": "import click\n",
    "commands/diff.py": (
        "import dlv.commands.shared.options\ndef f():\n    import dlv.versions.diff as diff\n"
    ),
    "commands/status.py": "",
    "cli.py": "import dlv.commands.shared.options\nimport click\n",
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
        ("pas/packs.py", "import dlv.repository.handle\n", "pas may not import repository"),
        ("pas/packs.py", "import dlv.network.graph\n", "pas may not import network"),
        ("pas/packs.py", f"{TYPED}import dlv.cli\n", "pas may not import cli"),
        ("pas/packs.py", "def f():\n    import dlv.cli\n", "pas may not import cli"),
        ("metadata/versions.py", "import dlv.pas.packs\n", "metadata may not import pas"),
        (
            "repository/handle.py",
            "import dlv.versions.diff\n",
            "repository may not import versions",
        ),
        ("archiving/archive.py", "from dlv.versions.diff import x\n", "may not import versions"),
        ("versions/diff.py", "import dlv.archiving.archive\n", "versions may not import archiving"),
        ("terminal/output.py", "import dlv.pas.packs\n", "terminal may not import pas"),
        ("commands/diff.py", "import dlv.commands.status\n", "imports the command"),
        ("cli.py", "import dlv.commands.status\n", "imports the command"),
        ("cli.py", "import dlv.versions.diff\n", "cli may not import versions"),
        ("cli.py", "def f():\n    import dlv.versions.diff\n", "cli may not import versions"),
        ("versions/diff.py", "from .pas import packs\n", "relative import"),
        ("versions/diff.py", "from dlv import pas\n", "from dlv import"),
        ("versions/diff.py", "import importlib\nimportlib.import_module('y')\n", "import_module"),
        (
            "versions/diff.py",
            "from importlib import import_module\nimport_module('y')\n",
            "import_module",
        ),
        ("versions/diff.py", "__import__('y')\n", "__import__"),
        ("versions/diff.py", "import dlv.nowhere\n", "does not exist"),
        ("versions/diff.py", "def f():\n    import dlv.nowhere\n", "does not exist"),
        (
            "versions/diff.py",
            "from dlv.errors import require\nrequire(name)\n",
            "something else than a text",
        ),
        ("pas/packs.py", "import zstandard\n", "zstandard belongs in pas/coders/"),
        (
            "versions/diff.py",
            "from rich.table import Table\n",
            "rich belongs in terminal/screen.py",
        ),
        ("versions/diff.py", "import git\n", "git belongs in repository/git_files.py"),
        (
            "versions/diff.py",
            "from dlv.errors import require\nrequire('torch', 't')\n",
            "torch belongs in",
        ),
        ("versions/diff.py", "import polars\n", "polars has no home"),
        ("metadata/versions.py", "import blake3\n", "only the standard library"),
        ("network/graph.py", "def f():\n    import numpy\n", "only the standard library"),
        ("versions/status.py", "import numpy\n", "loads numpy through dlv.versions.status"),
        ("versions/status.py", "import dlv.pas.packs\n", "loads numpy through dlv.pas.packs"),
        ("commands/diff.py", "import dlv.versions.diff\n", "loads numpy through dlv.pas.packs"),
        ("pas/read.py", "import dlv.pas.packs\n", "read.py: part of a cycle"),
        ("pas/__init__.py", "x = 1\n", "more than a docstring"),
        ("pas/__init__.py", '"""' + "x\n" * 11 + '"""\n', "more than a docstring"),
        ("pas/utils.py", "", "a name that is empty"),
        ("helpers/x.py", "", "a name that is empty"),
        ("strange.py", "", "`strange` is on no floor"),
        ("versions/diff.py", "x = 1\n" * 801, "801 lines"),
        ("commands/diff.py", "x = 1\n" * 171, "171 lines"),
    ],
)
def test_an_injected_fault_is_found(tmp_path: Path, path: str, text: str, expected: str) -> None:
    root = plant(tmp_path, GOOD)
    if "cycle" in expected:
        plant(root, {"pas/packs.py": f"{TYPED}import dlv.pas.read\n"})
    plant(root, {path: text})
    found = faults(root)
    assert any(expected in fault for fault in found), found


def test_a_crowded_folder_is_found(tmp_path: Path) -> None:
    root = plant(tmp_path, GOOD | {f"pas/part{number}.py": "" for number in range(30)})
    assert [fault for fault in faults(root) if "pas" in fault] == [
        "pas: 32 files and no inner room"
    ]
    plant(root, {"pas/coders/__init__.py": ""})
    assert not faults(root)


def test_arrows_are_few(modules: dict[str, Module]) -> None:
    """Between rooms; a new one wants a reason. `python -m tests.test_layers` prints them."""
    assert len(arrows(modules)) <= 190


if __name__ == "__main__":
    found = arrows(read(ROOT))
    for (start, end), count in sorted(found.items(), key=lambda arrow: FLOOR_OF[arrow[0][0]]):
        print(f"{FLOOR_OF[start]}  {start} -> {end}  {count}")
    print(len(found), "arrows")
