"""Everything of dlv that reads what somebody else wrote, each with things to begin from.

A target takes bytes and ends in a result or a DlvError; everything else is a fault of dlv.
"""

from __future__ import annotations

import importlib
import io
import json
import random
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path

import numpy as np

import dlv.bounds as bounds
import dlv.fact as fact
import dlv.ignore as ignore
import dlv.manifest as manifest
from dlv.adapters import settings
from dlv.canonical import dumps, hash_bytes, loads, read_json
from dlv.config import Config
from dlv.dql import parser
from dlv.errors import DlvError
from dlv.events import migrate, series
from dlv.network import json_form, selector, templates
from dlv.network.graph import Network
from dlv.pas import codecs, footer
from dlv.pas.coders.zstd import ZstdCodec
from dlv.pas.packs import END, TRAILER, Pack
from dlv.pas.storage_graph import problem_of
from tests.format.test_golden_weights import read_all
from tests.fuzz.mutations import bytes_changed, json_changed
from tests.hostile import caffe_files, keras_files
from tests.hostile.attack import consume

GOLDEN = Path(__file__).resolve().parents[1] / "golden"
FIXTURES = Path(__file__).resolve().parents[1] / "fixtures"
_LARGEST_SEED = 1 << 16

Change = Callable[[random.Random, bytes, Sequence[bytes]], bytes]


@dataclass(frozen=True)
class Target:
    seeds: Callable[[], Sequence[bytes]]
    run: Callable[[bytes], object]
    change: Change = bytes_changed


def _canonical(lot: random.Random, data: bytes, others: Sequence[bytes]) -> bytes:
    """Mostly canonical JSON of something else: mere bytes would not come past the first check."""
    if lot.random() < 0.15:
        return bytes_changed(lot, data, others)
    changed = json_changed(lot, json.loads(data))
    try:
        return dumps(changed)
    except (DlvError, ValueError, TypeError, UnicodeEncodeError):
        return json.dumps(changed).encode("utf-8", "replace")


def _golden(pattern: str) -> list[bytes]:
    return [path.read_bytes() for path in sorted(GOLDEN.glob(pattern))]


def _written(suffix: str, data: bytes, read: Callable[[Path], object]) -> object:
    """`read` of a file in memory where there is such a place."""
    path = _folder() / f"input{suffix}"
    path.write_bytes(data)
    return read(path)


@cache
def _folder() -> Path:
    memory = Path("/dev/shm")
    return Path(tempfile.mkdtemp(prefix="dlv-fuzz-", dir=memory if memory.is_dir() else None))


# What dlv itself writes


def _series(data: bytes) -> object:
    points = (GOLDEN / "series/1/points.bin").read_bytes()
    return series.decode(data, lambda *_: points)


def _footer(data: bytes) -> object:
    """Its chunks may say themselves where they end: that is compared with the file otherwise."""
    try:
        end = 8 + sum(row["length"] for row in json.loads(data)["chunks"])
    except (ValueError, KeyError, TypeError):
        end = 8
    return footer.parse(data, end if isinstance(end, int) else 8, "pack")


def _footer_seeds() -> list[bytes]:
    found = []
    for path in sorted(GOLDEN.glob("*/1/*.pack")):
        with Pack(path) as pack:
            found.append(pack.footer.dumps())
    return found


def _resealed(lot: random.Random, data: bytes, others: Sequence[bytes]) -> bytes:
    """A chunk or the footer is another one, and all checksums are right again."""
    with tempfile.NamedTemporaryFile(dir=_folder()) as file:
        file.write(data)
        file.flush()
        with Pack(file.name) as pack:
            found = pack.footer.as_json()
    body = bytearray(data)
    if lot.random() < 0.7:
        row = lot.choice(found["chunks"])
        start, length = row["offset"], row["length"]
        stored = bytes_changed(lot, bytes(body[start : start + length]), [])[:length]
        body[start : start + length] = stored.ljust(length, b"\0")
        row["blake3"] = hash_bytes(bytes(body[start : start + length]))
        if lot.random() < 0.2:
            row["raw"] = max(0, row["raw"] + lot.choice((-1, 1, 1000)))
    else:
        found = json_changed(lot, found)
    end = TRAILER.unpack(data[-TRAILER.size :])[0]
    try:
        frame = bytes(ZstdCodec("text").encode(dumps(found)))
    except (DlvError, ValueError, TypeError, UnicodeEncodeError):
        return bytes_changed(lot, data, others)
    digest = bytes.fromhex(hash_bytes(frame))
    return bytes(body[:end]) + frame + TRAILER.pack(end, len(frame), digest, END)


def _codec_seeds() -> list[bytes]:
    """The length of what is to come out, and what is stored."""
    found = []
    for folder in sorted((GOLDEN / "codec").iterdir()):
        length = len((folder / "plain.bin").read_bytes())
        stored = [path.read_bytes() for path in sorted(folder.glob("stored*.bin"))]
        found += [length.to_bytes(3, "big") + data for data in stored if len(data) < 1 << 18]
    return found


def _codec(data: bytes) -> object:
    length = int.from_bytes(data[:3], "big")
    made = [codecs.codec_of({"id": name}) for name in ("raw", "zstd")]
    if len(data) - 3 == length:
        made[0].decode(data[3:], length)
    return made[1].decode(data[3:], length)


def _settings(path: Path) -> object:
    return settings.flatten(settings.read(str(path)))


def _configuration(data: bytes) -> object:
    def read(path: Path) -> object:
        found = Config.load(path, {"HOME": "/nowhere"}, system=Path("/nowhere"))
        return [setting.value for setting in found.values()]

    return _written(".toml", data, read)


# Texts that people type


def _text(read: Callable[[str], object]) -> Callable[[bytes], object]:
    return lambda data: read(data.decode("utf-8", "surrogateescape"))


def _queries() -> list[bytes]:
    lines = (Path(__file__).parents[1] / "dql" / "valid.txt").read_text("utf-8").splitlines()
    return [line.replace("\\n", "\n").encode() for line in lines if line.strip()]


def _name(text: str) -> None:
    manifest.check_name(text)


# Files of other programs


def _npy() -> bytes:
    out = io.BytesIO()
    np.save(out, np.arange(6, dtype=np.float32).reshape(2, 3))
    return out.getvalue()


@cache
def _corpus() -> dict[str, Callable[[], bytes]]:
    """The hostile files, which are seeds too, and good ones of each kind."""
    found: dict[str, Callable[[], bytes]] = {}
    for module, name in (
        ("tests.hostile.corpus", "CORPUS"),
        ("tests.hostile.gguf_files", "HOSTILE"),
        ("tests.hostile.caffe_files", "HOSTILE"),
        ("tests.hostile.onnx_files", "HOSTILE"),
        ("tests.hostile.keras_files", "CORPUS"),
    ):
        found |= getattr(importlib.import_module(module), name)
    for module, suffix in (
        *(("gguf_files", ".gguf"), ("caffe_files", ".caffemodel")),
        *(("onnx_files", ".onnx"), ("keras_files", ".h5")),
    ):
        good = importlib.import_module(f"tests.hostile.{module}").GOOD
        found[f"good{suffix}"] = lambda good=good: good  # type: ignore[misc]
    basic = importlib.import_module("tests.hostile.corpus")
    found["good.safetensors"] = lambda: basic.GOOD
    found["good.npy"] = _npy
    found["good.prototxt"] = caffe_files.HEAD.encode
    found["good.keras"] = partial(keras_files.keras, keras_files.FINE, keras_files.GOOD)
    found["good.npz"] = lambda: basic.STORED
    for path in sorted(FIXTURES.glob("torch/*.pt")):
        found[path.name] = path.read_bytes
    return found


_TOO_LARGE = ("brackets", "deep", "bomb", "mb", "huge", "million", "90", "long", "many", "wide")


def _files(*suffixes: str) -> list[bytes]:
    seeds = []
    for name, build in _corpus().items():
        if name.endswith(suffixes) and not any(word in name for word in _TOO_LARGE):
            data = build()
            if len(data) <= _LARGEST_SEED:
                seeds.append(data)
    return seeds


def _file(suffix: str, *more: str) -> Target:
    return Target(
        partial(_files, suffix, *more),
        lambda data: _written(suffix, data, lambda path: consume(str(path))),
    )


def _events(data: bytes) -> object:
    return _written(".tfevents.1", data, lambda path: list(migrate.read(path)))


_GRAPH = {
    "vertices": 3,
    "snapshots": [[1, 2], [2]],
    "edges": [[0, 1, "materialise", 10, 5], [1, 2, "xor", 3, 4], [0, 2, "materialise", 9, 5]],
    "budgets": [12.7, None],
    "scheme": "parallel",
}
_LOG = b"step,loss,accuracy\n1,0.5,0.1\n2,0.25,nan\n3,,0.5\n"
_LINES = b'{"step": 1, "loss": 0.5}\n{"step": 2, "loss": 1e-3, "lr": {"a": 0.1}}\n'
_TOML = b'[optimizer]\nname = "sgd"\nlr = 1e-3\nbetas = [0.9, 0.99]\nsince = 2026-01-01\n'
_YAML = b"optimizer: {name: sgd, lr: 1e-3}\nlayers: &a [1, 2]\nagain: *a\n"
_SOLVER = b'base_lr: 0.01\nlr_policy: "step"\nsolver_mode: GPU\nnet_param { name: "x" }\n'

TARGETS: dict[str, Target] = {
    "manifest": Target(partial(_golden, "manifest/1/*.json"), manifest.decode, _canonical),
    "fact": Target(partial(_golden, "fact/1/*.json"), fact.decode_fact, _canonical),
    "bounds": Target(partial(_golden, "bounds/*/*.json"), bounds.decode, _canonical),
    "network": Target(
        partial(_golden, "network/1/*.json"),
        lambda data: Network.from_canonical(loads(data, "network")),
        _canonical,
    ),
    "network_json": Target(
        partial(_golden, "network/1/*.json"),
        lambda data: json_form.read(loads(data, "network")),
        _canonical,
    ),
    "series": Target(partial(_golden, "series/1/*.json"), _series, _canonical),
    "footer": Target(_footer_seeds, _footer, _canonical),
    "pack": Target(
        partial(_golden, "*/1/*.pack"),
        lambda data: _written(".pack", data, read_all),
    ),
    "sealed_pack": Target(
        partial(_golden, "*/1/*.pack"), lambda data: _written(".pack", data, read_all), _resealed
    ),
    "codec": Target(_codec_seeds, _codec),
    "storage_graph": Target(
        lambda: [json.dumps(_GRAPH).encode()],
        lambda data: problem_of(read_json(data, "graph")),
        _canonical,
    ),
    "config": Target(
        lambda: [b'[core]\njobs = 2\npager = "less"\n[archive]\nhot = 0.5\n[gc]\ngrace = "14d"\n'],
        _configuration,
    ),
    "ignore": Target(
        lambda: [b"*.tmp\n!keep\n/build/\n**/x[a-z]?\n\\#a\n"],
        _text(lambda text: ignore.ignored(ignore.parse(text), "a/b/xc.tmp", folder=False)),
    ),
    "query": Target(_queries, _text(lambda text: parser.parse(text))),
    "selector": Target(
        lambda: [b"conv[1,3,5]", b"conv*($1)", b"fc[1-9]?_", b"re:a+"],
        _text(lambda text: selector.selector(text)),
    ),
    "template": Target(
        lambda: [b'POOL("MAX")', b"CONV(kernel=3, stride=[1, 2]) | RELU", b"FULL(out=10)"],
        _text(templates.parse),
    ),
    "name": Target(lambda: [b"lenet", b"a.b_c+d-1"], _text(_name)),
    "settings": Target(
        lambda: [_TOML],
        lambda data: _written(
            ".toml", data, lambda path: settings.flatten(settings.read(str(path)))
        ),
    ),
    "yaml": Target(
        lambda: [_YAML],
        lambda data: _written(
            ".yaml", data, lambda path: settings.flatten(settings.read(str(path)))
        ),
    ),
    "solver": Target(
        lambda: [_SOLVER],
        lambda data: _written(".prototxt", data, lambda path: consume(str(path))),
    ),
    "csv": Target(
        lambda: [_LOG], lambda data: _written(".csv", data, lambda path: consume(str(path)))
    ),
    "jsonl": Target(
        lambda: [_LINES], lambda data: _written(".jsonl", data, lambda path: consume(str(path)))
    ),
    "events": Target(partial(_golden, "tfevents/*/*.tfevents"), _events),
    "torch": _file(".pt", ".pth"),
    "safetensors": _file(".safetensors"),
    "npz": _file(".npz"),
    "npy": _file(".npy"),
    "onnx": _file(".onnx"),
    "keras": _file(".keras"),
    "hdf5": _file(".h5"),
    "gguf": _file(".gguf"),
    "caffemodel": _file(".caffemodel"),
    "prototxt": _file(".prototxt"),
}
