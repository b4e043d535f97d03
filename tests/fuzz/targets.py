"""Everything of dlv that reads what somebody else wrote, each with things to begin from.

A target takes bytes and ends in a result or a DlvError; everything else is a fault of dlv.
"""

from __future__ import annotations

import importlib
import io
import json
import random
import tempfile
import zipfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path

import dlv.disk.ignore as ignore
import dlv.events.logs.batches as batches
import dlv.network.patterns as patterns
import dlv.objects.fact as fact_format
import dlv.objects.manifest as manifest_format
import dlv.weights.bounds as bounds
from dlv.adapters import settings as settings_files
from dlv.canonical import dumps, hash_bytes, loads, read_json
from dlv.config import Config
from dlv.dql.words import parser
from dlv.errors import DlvError
from dlv.events.formats import series as series_format
from dlv.hub.locator import decode_locator
from dlv.hub.records import decode_ref
from dlv.network import json_form, selector
from dlv.network.graph import Network
from dlv.pas import footer
from dlv.pas.coders import codecs
from dlv.pas.coders.zstd import ZstdCodec, decompress
from dlv.pas.footer import MAX_FOOTER
from dlv.pas.packs import END, TRAILER, Pack
from dlv.pas.storage_graph import problem_of
from tests.format.test_golden_weights import read_all
from tests.fuzz import good_files
from tests.fuzz.cut_packs import cut
from tests.fuzz.mutations import bytes_changed, json_changed
from tests.hostile.attack import consume

GOLDEN = Path(__file__).resolve().parents[1] / "golden"
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
    return series_format.decode_scalars(data, lambda *_: points)


def _footer(data: bytes) -> object:
    """Its chunks may say themselves where they end: that is compared with the file otherwise."""
    try:
        end = 8 + sum(row["length"] for row in json.loads(data)["chunks"])
    except (ValueError, KeyError, TypeError):
        end = 8
    return footer.parse(data, end if isinstance(end, int) else 8, "pack")


def _footer_seeds() -> list[bytes]:
    found = []
    for data in _packs():
        offset, length, _, _ = TRAILER.unpack(data[-TRAILER.size :])
        found.append(decompress(data[offset : offset + length], MAX_FOOTER, "a footer"))
    return found


def _packs() -> list[bytes]:
    return cut(tuple(sorted(GOLDEN.glob("*/1/*.pack"))))


def _resealed(lot: random.Random, data: bytes, others: Sequence[bytes]) -> bytes:
    """A chunk or the footer is another one, and all checksums are right again."""
    with tempfile.NamedTemporaryFile(dir=_folder()) as file:
        file.write(data)
        file.flush()
        with Pack(file.name) as pack:
            found = pack.footer.as_json()
    body = bytearray(data)
    if found["chunks"] and lot.random() < 0.7:
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
    return settings_files.flatten(settings_files.read(str(path)))


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
    manifest_format.check_name(text)


# Files of other programs


@cache
def _corpus() -> dict[str, Callable[[], bytes]]:
    """The hostile files, which are seeds too."""
    found: dict[str, Callable[[], bytes]] = {}
    for module, name in (
        ("tests.hostile.corpus", "CORPUS"),
        ("tests.hostile.gguf_files", "HOSTILE"),
        ("tests.hostile.caffe_files", "HOSTILE"),
        ("tests.hostile.onnx_files", "HOSTILE"),
        ("tests.hostile.keras_files", "CORPUS"),
    ):
        found |= getattr(importlib.import_module(module), name)
    return found


_TOO_LARGE = (
    "brackets",
    "deep",
    "bomb",
    "mb",
    "huge",
    "million",
    "90",
    "long",
    "many",
    "wide",
    "laughs",
)


@cache
def _files(*suffixes: str) -> list[bytes]:
    """The hostile ones, and about as many times good ones: a change of those comes further."""
    hostile = []
    for name, build in _corpus().items():
        if name.endswith(suffixes) and not any(word in name for word in _TOO_LARGE):
            data = build()
            if len(data) <= _LARGEST_SEED:
                hostile.append(data)
    fine = [data for suffix in suffixes for data in good_files.good(suffix)]
    return hostile + fine * max(1, len(hostile) // len(fine))


def _file(suffix: str, *more: str, change: Change = bytes_changed) -> Target:
    return Target(
        partial(_files, suffix, *more),
        lambda data: _written(suffix, data, lambda path: consume(str(path))),
        change,
    )


def _repacked(lot: random.Random, data: bytes, others: Sequence[bytes]) -> bytes:
    """Half of the time a member of the archive is another one, and its checksum right again."""
    if lot.random() < 0.5:
        return bytes_changed(lot, data, others)
    out = io.BytesIO()
    try:
        with zipfile.ZipFile(io.BytesIO(data)) as found, zipfile.ZipFile(out, "w") as target:
            names = found.namelist()
            one = lot.choice(names)
            if len(set(names)) < len(names):
                return bytes_changed(lot, data, others)
            for entry in found.infolist():
                member = found.read(entry) if entry.file_size <= _LARGEST_SEED else b""
                if entry.filename == one:
                    member = _member_changed(lot, member)
                target.writestr(entry, member)
    except Exception:  # whatever Python's own reader does with a hostile one
        return bytes_changed(lot, data, others)
    return out.getvalue()


def _member_changed(lot: random.Random, data: bytes) -> bytes:
    try:
        tree = json.loads(data)
    except (ValueError, RecursionError):
        return bytes_changed(lot, data, [])
    return json.dumps(json_changed(lot, tree)).encode("utf-8", "replace")


def _event_seeds() -> list[bytes]:
    """Each record of a real log once, in short files: a long one takes as long as many."""
    records = []
    for log in _golden("tfevents/*/*.tfevents"):
        at = 0
        while at < len(log):
            end = at + 16 + int.from_bytes(log[at : at + 8], "little")
            records.append(log[at:end])
            at = end
    first, *rest = records
    return [first + b"".join(rest[at : at + 8]) for at in range(0, len(rest), 8)]


def _events(data: bytes) -> object:
    return _written(".tfevents.1", data, lambda path: list(batches.read(path)))


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
    "manifest": Target(partial(_golden, "manifest/1/*.json"), manifest_format.decode, _canonical),
    "fact": Target(partial(_golden, "fact/1/*.json"), fact_format.decode_fact, _canonical),
    "ref": Target(
        partial(_golden, "remote/1/ref-*.json"), lambda data: decode_ref(data, "ref"), _canonical
    ),
    "locator": Target(
        partial(_golden, "remote/1/locator.zst"), lambda data: decode_locator(data, "locator")
    ),
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
    "pack": Target(_packs, lambda data: _written(".pack", data, read_all)),
    "sealed_pack": Target(_packs, lambda data: _written(".pack", data, read_all), _resealed),
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
        _text(patterns.parse),
    ),
    "name": Target(lambda: [b"lenet", b"a.b_c+d-1"], _text(_name)),
    "settings": Target(
        lambda: [_TOML],
        lambda data: _written(
            ".toml", data, lambda path: settings_files.flatten(settings_files.read(str(path)))
        ),
    ),
    "yaml": Target(
        lambda: [_YAML],
        lambda data: _written(
            ".yaml", data, lambda path: settings_files.flatten(settings_files.read(str(path)))
        ),
    ),
    "solver": Target(
        lambda: [_SOLVER], lambda data: _written(".prototxt", data, lambda path: consume(str(path)))
    ),
    "csv": Target(
        lambda: [_LOG], lambda data: _written(".csv", data, lambda path: consume(str(path)))
    ),
    "jsonl": Target(
        lambda: [_LINES], lambda data: _written(".jsonl", data, lambda path: consume(str(path)))
    ),
    "events": Target(_event_seeds, _events),
    "torch": _file(".pt", ".pth", change=_repacked),
    "pt2": _file(".pt2", change=_repacked),
    "safetensors": _file(".safetensors"),
    "npz": _file(".npz", change=_repacked),
    "npy": _file(".npy"),
    "onnx": _file(".onnx"),
    "keras": _file(".keras", change=_repacked),
    "hdf5": _file(".h5"),
    "gguf": _file(".gguf"),
    "caffemodel": _file(".caffemodel"),
    "prototxt": _file(".prototxt"),
}
