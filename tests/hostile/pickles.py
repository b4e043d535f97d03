"""Torch files made to attack their reader: `HOSTILE` maps a name to what builds the file."""

from __future__ import annotations

import io
import struct
import warnings
import zipfile
from collections.abc import Callable, Sequence
from functools import partial

Builder = Callable[[], bytes]

MARKER = "dlv-was-here"  # what the payloads would create


def archive(
    pickle: bytes | None,
    storages: dict[str, bytes] | None = None,
    *,
    extra: dict[str, bytes] | None = None,
    method: int = zipfile.ZIP_STORED,
    byteorder: bytes = b"little",
) -> bytes:
    """A file as torch.save lays it out."""
    out = io.BytesIO()
    content = {} if pickle is None else {"archive/data.pkl": pickle}
    content["archive/byteorder"] = byteorder
    for key, data in (storages if storages is not None else {"0": bytes(64)}).items():
        content[f"archive/data/{key}"] = data
    content["archive/version"] = b"3\n"
    with zipfile.ZipFile(out, "w") as file:
        for name, data in {**content, **(extra or {})}.items():
            info = zipfile.ZipInfo(name)
            info.compress_type = method if "/data/" in name else zipfile.ZIP_STORED
            file.writestr(info, data)
    return out.getvalue()


def text(value: str | bytes) -> bytes:
    data = value.encode() if isinstance(value, str) else value
    return b"X" + struct.pack("<I", len(data)) + data


def integer(value: int) -> bytes:
    data = value.to_bytes(value.bit_length() // 8 + 1, "little", signed=True)
    return bytes((0x8A, len(data))) + data


def numbers(values: Sequence[int]) -> bytes:
    return b"(" + b"".join(map(integer, values)) + b"t"


def storage(key: str = "0", elements: int = 16, kind: str = "torch FloatStorage") -> bytes:
    module, name = kind.split(" ")
    named = f"c{module}\n{name}\n".encode()
    return b"(" + text("storage") + named + text(key) + text("cpu") + integer(elements) + b"tQ"


def tensor(
    shape: Sequence[int] = (4, 4),
    strides: Sequence[int] = (4, 1),
    offset: int = 0,
    held: bytes | None = None,
) -> bytes:
    return (
        b"ctorch._utils\n_rebuild_tensor_v2\n("
        + (storage() if held is None else held)
        + integer(offset)
        + numbers(shape)
        + numbers(strides)
        + b"\x89ccollections\nOrderedDict\n)RtR"
    )


def state_dict(*values: bytes) -> bytes:
    """Protocol 2: {"w0": value, "w1": value, ..}."""
    items = b"".join(text(f"w{index}") + value for index, value in enumerate(values))
    return b"\x80\x02}(" + items + b"u."


def call(module: str, name: str, arguments: bytes = b")") -> bytes:
    return f"c{module}\n{name}\n".encode() + arguments + b"R"


def stack_global(module: str | bytes, name: str | bytes, rest: bytes = b")R") -> bytes:
    def short(value: str | bytes) -> bytes:
        data = value.encode() if isinstance(value, str) else value
        return b"\x8c" + bytes((len(data),)) + data

    return b"\x80\x04}" + text("w") + short(module) + short(name) + b"\x93" + rest + b"s."


def command(value: str = f"touch {MARKER}") -> bytes:
    return text(value) + b"\x85"


def whole(pickle: bytes) -> Builder:
    return partial(archive, pickle)


def held(value: bytes) -> Builder:
    return partial(archive, state_dict(tensor(), value))


def doubled(bottom: bytes) -> bytes:
    """Lists of two equal lists, 40 levels: 2^40 values to whoever walks them all."""
    levels = b"".join(
        b"](h" + bytes((i,)) + b"h" + bytes((i,)) + b"eq" + bytes((i + 1,)) + b"0"
        for i in range(40)
    )
    return archive(b"\x80\x02" + bottom + b"q\x000" + levels + b"h\x28.")


def nested_parameters() -> bytes:
    level = b"ctorch._utils\n_rebuild_parameter\n(h\x00\x89NtRq\x000"
    return archive(b"\x80\x02" + tensor() + b"q\x000" + level * 1000 + b"h\x00.")


def doubled_keys() -> bytes:
    """A tuple of two equal tuples, 250 levels, as a key: hashing it would take 2^250 steps."""
    levels = b"".join(
        b"h" + bytes((i,)) + b"h" + bytes((i,)) + b"\x86q" + bytes((i + 1,)) + b"0"
        for i in range(250)
    )
    return archive(b"\x80\x02)q\x000" + levels + b"}h\xfaK\x01s.")


def many_merges() -> bytes:
    big = b"}q\x00(" + b"".join(text(str(i)) + b"N" for i in range(900)) + b"u"
    copies = b"(" + b"ccollections\nCounter\nh\x00\x85R" * 5000 + b"l"
    return archive(b"\x80\x02(" + big + copies + b"t.")


def many_pairs() -> bytes:
    big = b"](" + b"".join(text(str(i)) + b"N\x86" for i in range(900)) + b"e\x85q\x00"
    copies = b"(" + b"ccollections\nOrderedDict\nh\x00R" * 5000 + b"l"
    return archive(b"\x80\x02(" + big + copies + b"t.")


def wide_names() -> bytes:
    """One key of 4,000 letters around 20,000 tensors, which the file holds once."""
    many = b"".join(b"](" + b"h\x00" * 1000 + b"e" for _ in range(20))
    inner = tensor() + b"q\x000](" + many + b"e"
    return archive(b"\x80\x02}" + text("x" * 4000) + inner + b"s.")


def two_pickles() -> bytes:
    out = io.BytesIO(archive(state_dict(tensor())))
    with zipfile.ZipFile(out, "a") as file, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        file.writestr("archive/data.pkl", b"\x80\x02" + call("posix", "system", command()) + b".")
    return out.getvalue()


HOSTILE: dict[str, Builder] = {
    # Code
    "posix.system": held(call("posix", "system", command())),
    "nt.system": held(call("nt", "system", command())),
    "os.system": held(call("os", "system", command())),
    "subprocess": held(call("subprocess", "Popen", command())),
    "builtins.eval": held(call("builtins", "eval", command("open('x', 'w')"))),
    "builtins.exec": held(call("__builtin__", "exec", command("import this"))),
    "builtins.getattr": held(call("builtins", "getattr", text("a") + text("b") + b"\x86")),
    "getattr chain": held(
        b"cbuiltins\ngetattr\n(cbuiltins\n__import__\n"
        + text("os")
        + b"\x85R"
        + text("system")
        + b"tR"
    ),
    "runpy": held(call("runpy", "_run_code", command())),
    "timeit": held(call("timeit", "main", command())),
    "pip": held(call("pip._internal.cli.main", "main", command())),
    "webbrowser": held(call("webbrowser", "open", command("http://localhost/"))),
    "numpy load": held(call("numpy", "load", command("x.npy"))),
    "numpy runstring": held(call("numpy.testing._private.utils", "runstring", command())),
    "torch.load": held(call("torch", "load", command("x.pt"))),
    "torch.hub": held(call("torch.hub", "load", command("a/b"))),
    "torch._utils import": held(call("torch._utils", "_import_dotted_name", command("os.system"))),
    "torch dtype trick": held(call("torch._utils", "__builtins__")),
    "functools.partial": held(call("functools", "partial", command())),
    "operator.attrgetter": held(call("operator", "attrgetter", command("system"))),
    "types.CodeType": held(call("types", "CodeType")),
    "copyreg": held(call("copyreg", "_reconstructor", command())),
    "saved module": held(call("torch.nn.modules.linear", "Linear")),
    "class of main": held(call("__main__", "Net")),
    "lambda through dill": held(call("dill._dill", "_create_function")),
    "newobj": held(b"csubprocess\nPopen\n" + command() + b"\x81"),
    "newobj with keywords": whole(
        b"\x80\x04ccollections\nOrderedDict\n)}" + text("a") + b"K\x01s\x92."
    ),
    "inst": held(b"(" + text("id") + b"iposix\nsystem\n"),
    "obj": held(b"(cposix\nsystem\n" + text("id") + b"o"),
    "ext1": held(b"\x82\x01"),
    "ext2": held(b"\x83\x01\x00"),
    "ext4": held(b"\x84\x01\x00\x00\x00"),
    "persid in text": held(b"Pposix.system\n"),
    "out of band buffer": whole(b"\x80\x05\x97."),
    # Crafted names
    "newline in a name": partial(archive, stack_global("collections\n", "OrderedDict")),
    "dotted name": partial(archive, stack_global("torch", "serialization.os.system")),
    "dotted into an allowed name": partial(
        archive, stack_global("collections", "OrderedDict.__init__.__globals__")
    ),
    "module ends in a dot": partial(archive, stack_global("torch._utils.", "_rebuild_tensor_v2")),
    "allowed name split elsewhere": partial(
        archive, stack_global("collections.OrderedDict", "fromkeys")
    ),
    "empty names": partial(archive, stack_global("", "")),
    "look-alike letter": partial(archive, stack_global("соllections", "OrderedDict")),
    "zero byte": partial(archive, stack_global("collections\0", "OrderedDict")),
    "name is a number": whole(b"\x80\x04K\x01K\x02\x93."),
    "name is a list": whole(b"\x80\x04]" + text("system") + b"\x93."),
    # Calls on what is no function
    "reduce text": held(text("system") + b")R"),
    "reduce a tensor": held(tensor() + b")R"),
    "reduce a dtype": held(b"ctorch\nfloat32\n)R"),
    "reduce with a list": held(b"ccollections\nOrderedDict\n]R"),
    "pairs that are none": held(b"ccollections\nOrderedDict\n](K\x01K\x02e\x85R"),
    "build on a list": held(b"]}b"),
    "build on a tensor twice": held(tensor() + b"}b}b"),
    "append to a dict": held(b"}K\x01a"),
    "set items of a tensor": held(tensor() + text("a") + b"K\x01s"),
    "set items of a list": held(b"]K\x00K\x01s"),
    # Memory and time
    "memo index of 50 million": whole(b"\x80\x02Nr" + struct.pack("<I", 50_000_000) + b"."),
    "memo index never set": whole(b"\x80\x02NNN000h\x03."),
    "text longer than the file": whole(b"\x80\x02X\xff\xff\xff\x7fabc."),
    "8-byte length": whole(b"\x80\x04\x8e" + b"\xff" * 8 + b"abc."),
    "negative length": whole(b"\x80\x02T\xff\xff\xff\xffabc."),
    "huge integer": whole(b"\x80\x02\x8b\xff\xff\xff\x7f\x01."),
    "huge frame": whole(b"\x80\x04\x95" + b"\xff" * 7 + b"\x7fN."),
    "nested marks": whole(b"\x80\x02" + b"(" * 100_000 + b"t" * 100_000 + b"."),
    "full stack": whole(b"\x80\x02(" + b"N" * 100_000 + b"t."),
    "nested lists": whole(b"\x80\x02" + b"]" * 9000 + b"a" * 8999 + b"."),
    "nested tuples": whole(b"\x80\x02)" + b"\x85" * 1_000_000 + b"."),
    "nested parameters": nested_parameters,
    "a million opcodes": whole(b"\x80\x02N" + b"N0" * 1_500_000 + b"."),
    "doubled lists": partial(doubled, tensor()),
    "merged again and again": many_merges,
    "pairs again and again": many_pairs,
    "doubled lists with much else": partial(doubled, b"](" + tensor() + b"N" * 5000 + b"e"),
    "names longer than the file": wide_names,
    "pickle of 65 MiB": whole(b"\x80\x02" + b"N0" * (33 << 20) + b"."),
    # Structure of the pickle
    "stack underflow": whole(b"\x80\x020."),
    "tuple without mark": whole(b"\x80\x02t."),
    "pop of a mark": whole(b"\x80\x02N(0."),
    "value across a mark": whole(b"\x80\x02K\x01(K\x02\x86t."),
    "nothing left": whole(b"\x80\x02."),
    "two left": whole(b"\x80\x02NN."),
    "odd items": whole(b"\x80\x02}(" + text("a") + b"u."),
    "bytes after the end": whole(b"\x80\x02N.cposix\nsystem\n"),
    "no protocol": whole(b"N."),
    "protocol 0": whole(b"(lp0\n."),
    "protocol 6": whole(b"\x80\x06N."),
    "protocol twice": whole(b"\x80\x02\x80\x02N."),
    "unknown opcode": whole(b"\x80\x02\xffN."),
    "text that is no UTF-8": whole(b"\x80\x02" + text(b"\xff\xfe") + b"."),
    "empty pickle": whole(b""),
    # Tensors that lie
    "huge shape": held(tensor((1 << 40, 1 << 40), (1 << 40, 1))),
    "shape of 10^30": held(tensor((10**30,), (0,))),
    "petabyte by stride 0": held(tensor((1 << 50,), (0,))),
    "terabyte by stride 0": held(tensor((1 << 38,), (0,))),
    "negative size": held(tensor((-4, 4))),
    "negative stride": held(tensor((4, 4), (-4, 1), 12)),
    "negative offset": held(tensor((2, 2), (2, 1), -1)),
    "offset overflow": held(tensor((2,), (1,), 1 << 63)),
    "offset behind the storage": held(tensor((2,), (1,), 15)),
    "stride behind the storage": held(tensor((4, 4), (5, 1))),
    "more strides than axes": held(tensor((4,), (4, 1))),
    "a hundred axes": held(tensor((1,) * 100, (1,) * 100)),
    "sizes are bools": held(tensor().replace(numbers((4, 4)), b"\x88\x88\x86")),
    "shape is a list": held(tensor().replace(numbers((4, 4)), b"](K\x04K\x04e")),
    "storage larger than its entry": held(tensor(held=storage("0", 1000))),
    "storage smaller than its entry": held(tensor((1,), (1,), held=storage("0", 1))),
    "storage size is negative": held(tensor(held=storage("0", -16))),
    "storage is missing": held(tensor(held=storage("7"))),
    "storage key climbs": held(tensor(held=storage("../data.pkl"))),
    "storage key is absolute": held(tensor(held=storage("/etc/passwd"))),
    "storage key is a number": held(tensor(held=storage().replace(text("0"), b"K\x00"))),
    "storage is a number": held(tensor(held=b"K\x05")),
    "storage is something else": held(
        tensor(held=storage().replace(text("storage"), text("module")))
    ),
    "storage of a dtype": held(tensor(held=storage(kind="torch float32"))),
    "persistent id of text": held(text("../../etc/passwd") + b"Q"),
    "rebuild without arguments": held(call("torch._utils", "_rebuild_tensor_v2")),
    "parameter of nothing": held(call("torch._utils", "_rebuild_parameter")),
    "parameter of a number": held(b"ctorch._utils\n_rebuild_parameter\n" + b"K\x01\x89N\x87R"),
    # The archive
    "deflated storage": partial(archive, state_dict(tensor()), method=zipfile.ZIP_DEFLATED),
    "no pickle": partial(archive, None),
    "two pickles": two_pickles,
    "two folders": partial(
        archive, state_dict(tensor()), extra={"other/data.pkl": state_dict(tensor())}
    ),
    "entry that climbs": partial(archive, state_dict(tensor()), extra={"archive/../x": b"1"}),
    "byte order of its own": partial(archive, state_dict(tensor()), byteorder=b"middle"),
    "old file": lambda: b"\x80\x02\x8a\nl\xfc\x9cF\xf9 j\xa8P\x19.\x80\x02M\xe9\x03.",
    "old tar": lambda: b"storages".ljust(257, b"\0") + b"ustar\x00" + bytes(1000),
    "raw pickle": lambda: state_dict(call("posix", "system", command())),
}

# Not attacks, but nothing that dlv could store: UsageError.
UNSUPPORTED: dict[str, Builder] = {
    "quantised": held(call("torch._utils", "_rebuild_qtensor")),
    "sparse": held(call("torch._utils", "_rebuild_sparse_tensor")),
    "meta": held(call("torch._utils", "_rebuild_meta_tensor_no_storage")),
    "subclass": held(
        b"ctorch._tensor\n_rebuild_from_type_v2\n(ctorch._utils\n_rebuild_tensor_v2\n"
        b"ctorch\nSize\n)NtR"
    ),
    "code": partial(archive, state_dict(tensor()), extra={"archive/code/a.py": b"1"}),
}

# Read without harm: they look like attacks, and would be for a reader that does what they say.
HARMLESS: dict[str, Builder] = {
    "state with __setstate__": held(
        b"ctorch\ndevice\n)R}" + text("__setstate__") + text("os.system") + b"sb"
    ),
    "attributes of a dict": held(
        b"ccollections\nOrderedDict\n)R}" + text("__class__") + text("os.system") + b"sb"
    ),
    "list in itself": held(b"]q\x00h\x00a"),
    "dict in itself": held(b"}q\x00" + text("a") + b"h\x00s"),
    "dict that is its own state": held(b"cargparse\nNamespace\n)Rq\x00h\x00b"),
    "doubled keys": doubled_keys,
    "doubled lists of nothing": partial(doubled, b"N"),
    "hyperparameters without end": whole(
        b"\x80\x02}(" + text("config") + b"](" + b"](" * 8 + b"K\x01" * 90 + b"e" * 9 + b"u."
    ),
    "hyperparameters in themselves": whole(
        b"\x80\x02}" + text("config") + b"]q\x00(" + b"h\x00" * 100 + b"es."
    ),
    "name of the parent": whole(b"\x80\x02}" + text("../../x\x00\n") + tensor() + b"s."),
    "lone surrogate": whole(b"\x80\x02}" + text(b"\xed\xa0\x80") + tensor() + b"s."),
}
