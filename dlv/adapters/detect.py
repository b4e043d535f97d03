"""The format of a file, by its content: a head and a zip's directory are read, nothing is run.

Of a file's name, what trainers put there: the step, and which of several shards it is.
"""

from __future__ import annotations

import json
import re
from pathlib import PurePath

from dlv.adapters import archive
from dlv.adapters.source import Source
from dlv.errors import DlvError, UsageError

HEAD_BYTES = 1 << 20

# Format -> what `add` does with it unless told otherwise.
ROLES = {
    "safetensors": "weights",
    "pt": "weights",
    "pt2": "weights",
    "npz": "weights",
    "npy": "weights",
    "pickle": "weights",
    "onnx": "weights",
    "keras": "weights",
    "hdf5": "weights",
    "gguf": "weights",
    "caffemodel": "weights",
    "prototxt": "network",
    "network_json": "network",
    "toml": "config",
    "yaml": "config",
    "json": "config",
    "caffe_solver": "config",
    "trainer_state": "log",
    "jsonl": "log",
    "csv": "log",
    "tfevents": "log",
    "zip": "file",
    "text": "file",
    "binary": "file",
}

EVENTS = "tfevents"  # what TensorBoard reads

_MAGIC = (
    (b"\x93NUMPY", "npy"),
    (b"\x89HDF\r\n\x1a\n", "hdf5"),
    (b"GGUF", "gguf"),
    # torch.save before 1.6: a pickled magic number, then more pickles and raw storages.
    (b"\x80\x02\x8a\x0al\xfc\x9cF\xf9 j\xa8P\x19.", "pickle"),
)
_PICKLE_NAMES = (".pkl", ".pickle", ".p", ".pt", ".pth", ".ckpt", ".bin", ".joblib")
_TEXT_PICKLE = re.compile(rb"\((?:lp|dp|i)[0-9]|[(\]}][ldpq]|c[\w.]+\n[\w.]+\n")
_TAR_PICKLE = (b"sys_info\0", b"pickle\0", b"storages\0", b"tensors\0")
_OLD_PROGRAM = "serialized_exported_program.json"  # torch.export.save before torch 2.8
_ONNX_TAGS = b"\x12\x1a\x22\x2a\x32\x3a\x42\x72"
_ONNX_MAKERS = (b"pytorch", b"onnx", b"paddle", b"mxnet", b"keras")
_HDF5_OFFSETS = (512, 1024, 2048)

# Caffe: fields 1 to 8 and 100 of a network: name, layers, input, .., layer.
_NET_TAGS = b"\x0a\x12\x1a\x20\x22\x28\x32\x38\x42\xa2"
_LAYER_TAG = b"\xa2\x06"
_PROTOTXT_SUFFIXES = ("", ".prototxt", ".pbtxt", ".txt")

_PROTOTXT_FIELD = re.compile(r"(?:\s++|#[^\n]*+)*+[a-z_]+\s*+[:{<]")
_PROTOTXT_LAYERS = re.compile(r"^[ \t]*+layers?[ \t]*+:?\s*+[{<]", re.MULTILINE)
_PROTOTXT_WIRES = re.compile(r"\b(?:bottom|top)\s*+:\s*+[\[\"']")
_PROTOTXT_TYPE = re.compile(r"\btype\s*+:\s*+[\"'A-Z]")
_SOLVER_SETTING = re.compile(
    r"^[ \t]*+(base_lr|lr_policy|max_iter|solver_mode|snapshot_prefix|solver_type|test_interval"
    r"|train_net|net)[ \t]*+:",
    re.MULTILINE,
)
_SOLVER_MUST = {"base_lr", "lr_policy"}

_NETWORK = re.compile(r'"dlv_network"\s*:\s*[0-9]')
_TRAINER_STATE = re.compile(r'"log_history"\s*:\s*\[')
_CONTROL = re.compile(r"[\x00-\x08\x0e-\x1a\x1c-\x1f]")
_NUMBER = re.compile(r"[+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?|nan|[+-]?inf", re.I)
_HEADING = re.compile(r"[^\W\d][\w ./:@%#()\[\]-]{0,80}")
_TABLE = re.compile(
    r"^[ \t]*\[{1,2}[\w.\"'-]+\]{1,2}[ \t]*(?:#.*)?$|^[ \t]*[\w.\"-]+[ \t]*=", re.MULTILINE
)
_TOML_BYTES = 64 << 10

# Arrays called x_train, labels, test_images ... are samples; no framework calls weights so.
_SAMPLES = "x|y|data|images?|labels?|inputs?|targets?|features?|samples?"
_PART = "train|training|test|testing|val|valid|validation|dev"
_SAMPLE = re.compile(f"(?:(?:{_PART})_)?(?:{_SAMPLES})(?:_(?:{_PART}))?", re.I)

_BY_NAME = {
    ".toml": "toml",
    ".yaml": "yaml",
    ".yml": "yaml",
    ".jsonl": "jsonl",
    ".ndjson": "jsonl",
    ".csv": "csv",
    ".tsv": "csv",
    ".json": "json",
}


DISTRIBUTED = ".distcp"  # parts of torch.distributed.checkpoint

# What a file of this name is meant to be. Other names mean too much else.
CLAIMED = {
    ".safetensors": "safetensors",
    ".onnx": "ONNX",
    ".npz": "npz",
    ".npy": "npy",
    ".gguf": "GGUF",
    ".keras": "Keras",
    ".h5": "HDF5",
    ".caffemodel": "Caffe",
    ".pt2": "PyTorch export",
}


def detect(path: str) -> str:
    """The format of a file: a key of `ROLES`. The name decides only where content cannot."""
    with Source(path) as file:
        head = bytes(file.read(0, min(file.size, HEAD_BYTES)))
        # A compound name like `events.out.tfevents.123.host` has no one suffix.
        suffix = PurePath(file.name).suffix.lower()
        if suffix == DISTRIBUTED:
            folder = PurePath(path).parent.name or "FOLDER"
            raise UsageError(
                f"{file.name} is a part of a checkpoint of torch.distributed.checkpoint",
                why="which tensors it holds is known from a pickle alone",
                hint="python -m torch.distributed.checkpoint.format_utils dcp_to_torch"
                f" {folder} {folder}.pt",
            )
        return _binary(file, head, suffix) or _text(head, file, suffix) or "binary"


def role_of(format_: str) -> str:
    """weights, network, config, log or file."""
    return ROLES[format_]


def is_data_set(path: str) -> bool:
    """Whether an npz holds samples rather than weights, by the names of its arrays."""
    with Source(path) as file:
        try:
            names = [entry.name for entry in archive.read_directory(file)]
        except DlvError:
            return False
    return bool(names) and all(_SAMPLE.fullmatch(name.removesuffix(".npy")) for name in names)


def _binary(file: Source, head: bytes, suffix: str) -> str | None:
    if head[:4] in (b"PK\x03\x04", b"PK\x05\x06"):
        return _zip(file, head, suffix)
    for magic, name in _MAGIC:
        if head.startswith(magic):
            return name
    if any(head[at : at + 8] == b"\x89HDF\r\n\x1a\n" for at in _HDF5_OFFSETS):
        return "hdf5"
    if _is_safetensors(head, suffix):
        return "safetensors"
    if _is_pickle(file, head, suffix):
        return "pickle"
    if _is_events(file, head):
        return EVENTS
    if _is_onnx(head, suffix):
        return "onnx"
    if _is_caffemodel(head, suffix):
        return "caffemodel"
    return None


def _is_safetensors(head: bytes, suffix: str) -> bool:
    length = int.from_bytes(head[:8], "little")
    # In a text the eight bytes would be a number far beyond the limit.
    return head[8:9] == b"{" and (length <= 100_000_000 or suffix == ".safetensors")


def _is_pickle(file: Source, head: bytes, suffix: str) -> bool:
    if len(head) > 2 and head[0] == 0x80 and 2 <= head[1] <= 5:
        return suffix in _PICKLE_NAMES or file.read(file.size - 1, 1) == b"."
    if head[257:262] == b"ustar":
        return head.startswith(_TAR_PICKLE)
    return suffix in _PICKLE_NAMES and _TEXT_PICKLE.match(head) is not None


def _is_events(file: Source, head: bytes) -> bool:
    if b".tfevents." in file.name.encode("utf-8", "surrogateescape"):
        return True
    return int.from_bytes(head[:8], "little") < 1024 and b"brain.Event:" in head[12:64]


def _is_onnx(head: bytes, suffix: str) -> bool:
    # Protobuf has no magic: field 1 is the IR version, then the producer or the graph.
    if len(head) > 2 and head[0] == 8 and 1 <= head[1] <= 30 and head[2] in _ONNX_TAGS:
        return suffix == ".onnx" or any(maker in head[:256].lower() for maker in _ONNX_MAKERS)
    # A damaged or odd one of that name is still no file of another kind.
    return suffix == ".onnx" and head[:1] in (b"\x08", b"\x12", b":") and min(head[:64]) < 9


def _is_caffemodel(head: bytes, suffix: str) -> bool:
    """Protobuf has no magic: without the usual name, a name and a layer must stand in front."""
    if suffix == ".caffemodel":
        return len(head) > 1 and head[0] in _NET_TAGS
    if head[:1] != b"\x0a" or len(head) < 4 or head[1] > 100:
        return False
    name, behind = head[2 : 2 + head[1]], head[2 + head[1] : 4 + head[1]]
    return (
        behind == _LAYER_TAG and name.isascii() and not name.translate(None, bytes(range(32, 127)))
    )


def _caffe_format(text: str, suffix: str) -> str | None:
    """A network, the settings of a solver, or neither."""
    if suffix not in _PROTOTXT_SUFFIXES or not _PROTOTXT_FIELD.match(text):
        return None
    keys = {match[1] for match in _SOLVER_SETTING.finditer(text, 0, 1 << 16)}
    if len(keys) > 1 and keys & _SOLVER_MUST:
        return "caffe_solver"
    if (
        _PROTOTXT_LAYERS.search(text)
        and _PROTOTXT_WIRES.search(text)
        and _PROTOTXT_TYPE.search(text)
    ):
        return "prototxt"
    return None


def _zip(file: Source, head: bytes, suffix: str) -> str:
    try:
        names = [entry.name for entry in archive.read_directory(file)]
    except DlvError:
        # The adapter will say what is wrong with it; here only whose file it was meant to be.
        length = int.from_bytes(head[26:28], "little")
        names = [head[30 : 30 + length].decode("utf-8", "replace")]
        if suffix in (".pt", ".pth", ".ckpt"):
            return "pt"
        if suffix == ".keras":
            return "keras"
        if suffix == ".pt2":
            return "pt2"
    if any(name.endswith("/archive_format") or name == _OLD_PROGRAM for name in names):
        return "pt2"
    if any(name == "data.pkl" or name.endswith("/data.pkl") for name in names):
        return "pt"
    if suffix in (".pt", ".pth", ".ckpt") and any(name.endswith("/version") for name in names):
        return "pt"  # torch.save broke off: the adapter says so
    if "model.weights.h5" in names or (suffix == ".keras" and "config.json" in names):
        return "keras"
    if any(name.endswith(".npy") for name in names) or suffix == ".npz":
        return "npz"
    return "zip"


def _text(head: bytes, file: Source, suffix: str) -> str | None:
    whole = file.size == len(head)
    try:
        text = head.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        # The head may end within a character, and so may a log that is being written.
        if error.reason != "unexpected end of data":
            return None
        text = head[: error.start].decode("utf-8-sig")
    if _CONTROL.search(text):
        return None
    named = _BY_NAME.get(suffix)
    start = text.lstrip()
    if start.startswith("{") or (start.startswith("[") and named == "json"):
        return _json(start, named, whole=whole)
    if named and named != "json":
        return named
    if caffe := _caffe_format(text, suffix):
        return caffe
    if _is_table(text, whole=whole):
        return "csv"
    if not suffix and start.startswith(("---\n", "---\r\n", "%YAML")):
        return "yaml"
    if not suffix and len(text) <= _TOML_BYTES and _TABLE.search(text) and _is_toml(text):
        return "toml"
    return "text"


def _json(text: str, named: str | None, *, whole: bool) -> str:
    first, _, rest = text.partition("\n")
    following = rest.lstrip()
    single = whole and not following
    if named == "jsonl" or (following.startswith("{") and _is_object(first)):
        return "jsonl"
    if _NETWORK.search(text):
        return "network_json"
    if _TRAINER_STATE.search(text):
        return "trainer_state"
    if named == "json" or not single or _is_object(first):
        return "json" if named in (None, "json") else named
    return "text"


def _is_object(line: str) -> bool:
    try:
        return isinstance(json.loads(line), dict)
    except (ValueError, RecursionError):
        return False


def _is_table(text: str, *, whole: bool) -> bool:
    """A heading and a row of as many cells, with a number in it."""
    lines = [line for line in text[: 64 << 10].splitlines()[:20] if line.strip()]
    if len(lines) < 2 or (len(lines) == 2 and not whole and len(text) > 64 << 10):
        return False
    for delimiter in (",", ";", "\t"):
        heading = [cell.strip().strip('"') for cell in lines[0].split(delimiter)]
        row = [cell.strip().strip('"') for cell in lines[1].split(delimiter)]
        if len(heading) < 2 or len(row) != len(heading):
            continue
        if all(_HEADING.fullmatch(cell) for cell in heading):
            return any(_NUMBER.fullmatch(cell) for cell in row)
    return False


def _is_toml(text: str) -> bool:
    import tomllib

    try:
        return bool(tomllib.loads(text))
    except (ValueError, RecursionError):
        return False


_SUFFIX = re.compile(r"(?:\.[A-Za-z][A-Za-z0-9]{0,14})+$")
_COUNT = r"([0-9]{1,18})([kKmM]?)(?![A-Za-z0-9])"
_START = r"(?:^|(?<=[^a-z]))"
# In this order: a step says more than an epoch, both say more than a bare number.
_STEP = re.compile(_START + r"(?:global_?step|steps?|iterations?|iters?)[=_-]?" + _COUNT, re.I)
_EPOCH = re.compile(_START + r"epochs?[=_-]?" + _COUNT, re.I)
_PLAIN = re.compile(
    r"(?:.*[^a-z])?(?:checkpoints?|ckpts?|chkpt|cp|model|weights|snapshot|state)[=_.-]?" + _COUNT,
    re.I,
)
_BARE = re.compile("([0-9]{1,18})")
_DATE = re.compile("(?:19|20)[0-9]{2}(?:0[1-9]|1[0-2])(?:0[1-9]|[12][0-9]|3[01])(?:[0-9]{6})?")
_SHARD = re.compile(
    r"(.+?)[-_.]([0-9]{1,6})[-_]of[-_]([0-9]{1,6})((?:\.[A-Za-z][A-Za-z0-9]{0,14})*)", re.I
)
_UNITS = {"": 1, "k": 1000, "m": 1_000_000}


def step_of(name: str) -> int | None:
    """The training step that a path names, in its file name or else in its folder's."""
    shard = shard_of(name)
    parts = [part for part in (shard[0] if shard else name).replace("\\", "/").split("/") if part]
    if not parts:
        return None
    stem = _SUFFIX.sub("", parts[-1])
    step = _step_in(stem)
    if step is None and _BARE.fullmatch(stem) and not _DATE.fullmatch(stem):
        step = int(stem)
    if step is None and len(parts) > 1:
        step = _step_in(parts[-2])
    return step


def shard_of(name: str) -> tuple[str, int, int] | None:
    """(path without the shard's number, its number, how many there are): parts of one snapshot."""
    match = _SHARD.fullmatch(name)
    if match is None or "/" in name[match.end(1) :]:
        return None
    index, count = int(match[2]), int(match[3])
    return (match[1] + match[4], index, count) if index <= count and count else None


def _step_in(stem: str) -> int | None:
    found = list(_STEP.finditer(stem)) or list(_EPOCH.finditer(stem))
    match = found[-1] if found else _PLAIN.fullmatch(stem)
    if match is None or (not found and _DATE.fullmatch(match[1])):
        return None
    return int(match[1]) * _UNITS[match[2].lower()]
