"""Columns of a data set: arrays with a row per example, of which stretches are read.

Labels are columns, too: whole numbers, or texts that are numbered in order. So is what the user's
own code gives (`python:module:function`), which is run because the user named it.
"""

from __future__ import annotations

import tempfile
import zlib
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from types import ModuleType
from typing import IO, Any, Literal, Protocol

import numpy as np
from numpy.typing import DTypeLike

import dlv.own_code as own_code
from dlv.adapters import archive, npz
from dlv.adapters.archive import Entry
from dlv.adapters.npz import Header
from dlv.adapters.source import Source
from dlv.errors import Damaged, DlvError, NotFound, UnsafeInput, UsageError, nearest
from dlv.kinds import Array

# An array whose rows do not lie one after the other is held in memory up to this size.
MOST_HELD = 256 << 20
# What is made on the way (rows of CSV, images) is held in memory, and beyond this on disk.
MOST_SPOOLED = 64 << 20


class Column(Protocol):
    """`shape` is that of one row; `name` is for messages."""

    @property
    def name(self) -> str: ...
    @property
    def dtype(self) -> np.dtype[Any]: ...
    @property
    def shape(self) -> tuple[int, ...]: ...
    @property
    def count(self) -> int: ...

    def read(self, start: int, stop: int) -> Array:
        """The rows start .. stop."""
        ...


class Held:
    """An array in memory."""

    def __init__(self, name: str, array: Array) -> None:
        self.name = name
        self._array = array
        self.dtype = array.dtype
        self.shape = array.shape[1:]
        self.count = len(array)

    def read(self, start: int, stop: int) -> Array:
        return self._array[start:stop]


class _InFile:
    """An array in a file, behind the header that describes it."""

    def __init__(self, name: str, file: Source, header: Header) -> None:
        self.name = name
        self._file = file
        self._head = header.length
        self._stored = dtype_of(header, name)
        self.dtype = self._stored.newbyteorder("=")
        self.count, self.shape = _rows(header, name)
        self._each = self._stored.itemsize * int(np.prod(self.shape, dtype=np.int64))


class Stored(_InFile):
    """An array that lies plainly in a file; read from its beginning, its checksum is compared."""

    def __init__(
        self, name: str, file: Source, offset: int, header: Header, crc: int | None = None
    ) -> None:
        super().__init__(name, file, header)
        self._offset = offset
        self._wanted = crc
        self._sum, self._summed = zlib.crc32(b""), 0

    def read(self, start: int, stop: int) -> Array:
        raw = self._file.read(self._offset + start * self._each, (stop - start) * self._each)
        if self._wanted is not None and start == self._summed:
            if not start:  # the checksum is of the whole entry, its header included
                self._sum = zlib.crc32(self._file.read(self._offset - self._head, self._head))
            self._sum, self._summed = zlib.crc32(raw, self._sum), stop
            if stop == self.count:
                if self._sum != self._wanted:
                    raise Damaged(f"{self.name} is corrupt", why="checksum mismatch")
                self._wanted = None
        return _array(raw, self._stored, (stop - start, *self.shape))


class Deflated(_InFile):
    """An array in a compressed archive: read onwards, and from the beginning to go back."""

    def __init__(self, name: str, file: Source, entry: Entry, header: Header) -> None:
        super().__init__(name, file, header)
        self._entry = entry
        self._pieces: Iterator[bytes | bytearray] = iter(())
        self._waiting = bytearray()
        self._at = -1  # position of what waits, from the first element on

    def read(self, start: int, stop: int) -> Array:
        if self._at < 0 or start * self._each < self._at:
            self._pieces = archive.stream(self._file, self._entry, self._entry.size)
            self._waiting, self._at = bytearray(), -self._head
        self._skip(start * self._each - self._at)
        raw = self._take((stop - start) * self._each)
        if stop == self.count:
            for _ in self._pieces:  # to its end, where length and checksum are compared
                pass
            self._at = -1
        return _array(raw, self._stored, (stop - start, *self.shape))

    def _skip(self, count: int) -> None:
        while count:
            self._fill()
            done = min(count, len(self._waiting))
            del self._waiting[:done]
            self._at += done
            count -= done

    def _take(self, count: int) -> bytearray:
        out = bytearray()
        while len(out) < count:
            self._fill()
            done = min(count - len(out), len(self._waiting))
            out += self._waiting[:done]
            del self._waiting[:done]
            self._at += done
        return out

    def _fill(self) -> None:
        if not self._waiting:
            piece = next(self._pieces, None)
            if piece is None:
                raise Damaged(f"{self.name} is truncated")
            self._waiting += piece


class Spooled:
    """Rows that were made on the way: added first, then read; they go with the column."""

    def __init__(self, name: str, dtype: DTypeLike, shape: Sequence[int]) -> None:
        self.name = name
        self.dtype = np.dtype(dtype)
        self.shape = tuple(shape)
        self.count = 0
        self._each = self.dtype.itemsize * int(np.prod(self.shape, dtype=np.int64))
        self._file: IO[bytes] = tempfile.SpooledTemporaryFile(MOST_SPOOLED)  # noqa: SIM115

    def add(self, rows: Array) -> None:
        """Append rows; their shape is that of the column."""
        self._file.write(np.ascontiguousarray(rows, self.dtype).tobytes())
        self.count += len(rows)

    def read(self, start: int, stop: int) -> Array:
        self._file.seek(start * self._each)
        raw = bytearray(self._file.read((stop - start) * self._each))
        return _array(raw, self.dtype, (stop - start, *self.shape))

    def __del__(self) -> None:
        if hasattr(self, "_file"):
            self._file.close()


def of_file(name: str, file: Source) -> Column:
    """The array of a `.npy` file."""
    start = file.read(0, min(12, file.size))
    header = npz.parse(file.read(0, npz.header_length(start, file.name)), file.name)
    npz.check_size(header, file.size, file.name)
    return of_header(name, file, header.length, header)


def of_header(
    name: str, file: Source, offset: int, header: Header, crc: int | None = None
) -> Column:
    """An array that lies plainly in a file, in either order of its axes."""
    if not header.column_major:
        return Stored(name, file, offset, header, crc)
    _check_held(header.nbytes, name)
    raw = file.read(offset, header.nbytes)
    return Held(name, _turned(raw, header, name))


def of_entry(name: str, file: Source, entry: Entry, header: Header) -> Column:
    """An array in a `.npz` archive."""
    if entry.method == archive.STORED:
        return of_header(name, file, entry.offset + header.length, header, entry.crc)
    if not header.column_major:
        return Deflated(name, file, entry, header)
    _check_held(header.nbytes, name)
    raw = archive.read(file, entry, entry.size)[header.length :]
    return Held(name, _turned(raw, header, name))


def dtype_of(header: Header, name: str) -> np.dtype[Any]:
    """numpy's dtype of what a header describes, its byte order included."""
    order: Literal["<", ">"] = ">" if header.unit > 1 else "<"
    if header.dtype.startswith("raw:"):
        text = header.dtype.removeprefix("raw:").lstrip("<|")
        if text[0] not in "US":
            raise UsageError(f"{name} has no numbers and no text", why=f"its dtype is {text}")
        return np.dtype(order + text)
    return np.dtype(header.dtype).newbyteorder(order)


def _array(raw: bytearray, dtype: np.dtype[Any], shape: Sequence[int]) -> Array:
    if not raw:
        return np.empty(shape, dtype.newbyteorder("="))
    array: Array = np.frombuffer(raw, dtype).reshape(shape)
    return array.astype(dtype.newbyteorder("="), copy=False)


def _rows(header: Header, name: str) -> tuple[int, tuple[int, ...]]:
    if not header.shape:
        raise UsageError(f"{name} is a single number", why="one row per example is required")
    return header.shape[0], header.shape[1:]


def _turned(raw: bytearray, header: Header, name: str) -> Array:
    array = _array(raw, dtype_of(header, name), header.shape[::-1])
    return np.ascontiguousarray(array.T)


def _check_held(size: int, name: str) -> None:
    if size > MOST_HELD:
        raise UnsafeInput(
            f"{name} is saved in Fortran order, and too large to be turned in memory",
            why=f"{size} bytes, the limit is {MOST_HELD}",
            hint="save numpy.ascontiguousarray of it",
        )


_BLOCK = 4096
MOST_CLASSES = 1 << 20


def coded(
    column: Column, count: int, classes: Sequence[str] | None
) -> tuple[Column, tuple[str, ...] | None]:
    """The labels as numbers, and the names of the classes where there are any.

    Texts are numbered as `data.classes` lists them, else in alphabetical order.
    """
    given = tuple(classes) if classes else None
    if column.dtype.kind in "biuf":
        if column.shape == (1,):
            return _Flat(column), given
        return column, given
    if column.dtype.kind not in "US" or column.shape not in ((), (1,)):
        raise UsageError(
            f"{column.name} has no labels", why=f"{column.dtype} with rows of {column.shape}"
        )
    if given is None:
        seen: set[str] = set()
        for start in range(0, count, _BLOCK):
            seen.update(_texts(column.read(start, min(start + _BLOCK, count))))
            if len(seen) > MOST_CLASSES:
                raise UnsafeInput(f"{column.name} has too many different labels")
        given = tuple(sorted(seen))
    return _Coded(column, {text: at for at, text in enumerate(given)}), given


def _texts(labels: Array) -> list[str]:
    flat = labels.reshape(-1).tolist()
    return [t.decode("utf-8", "replace") if isinstance(t, bytes) else str(t) for t in flat]


class _Flat:
    """Labels of shape (rows, 1) as (rows,)."""

    def __init__(self, column: Column) -> None:
        self.name, self.count = column.name, column.count
        self.dtype, self.shape = column.dtype, ()
        self._column = column

    def read(self, start: int, stop: int) -> Array:
        return self._column.read(start, stop).reshape(stop - start)


class _Coded:
    """Texts as the numbers of their classes."""

    def __init__(self, column: Column, numbers: Mapping[str, int]) -> None:
        self.name, self.count = column.name, column.count
        self.dtype: np.dtype[Any] = np.dtype(np.int64)
        self.shape: tuple[int, ...] = ()
        self._column = column
        self._numbers = numbers

    def read(self, start: int, stop: int) -> Array:
        texts = _texts(self._column.read(start, stop))
        try:
            return np.array([self._numbers[text] for text in texts], np.int64)
        except KeyError as error:
            unknown = str(error.args[0])
            raise UsageError(
                f"row {start + texts.index(unknown)} of {self.name} has an unknown label",
                why=f"{unknown[:100]!r} is none of {', '.join(list(self._numbers)[:8])}",
                did_you_mean=nearest(unknown, self._numbers),
                hint="data.classes in a --config file lists them in the network's order",
            ) from None


PREFIX = "python:"


def load(where: str, directory: Path) -> Any:
    """The function: its module is imported, from this directory first."""
    _, module_name, function_name, *rest = [*where.split(":"), "", ""]
    if not module_name or not function_name or any(rest):
        raise UsageError(
            f"`{where}` is not of the form python:module:function",
            why="the module is one that `import` finds from here",
        )
    return _function(own_code.module(module_name, directory), function_name, module_name)


def called(function: Any, where: str) -> dict[str, Column]:
    """The result of a function, called once, as named columns."""
    try:
        made = function()
        return columns_of(made, where)
    except DlvError:
        raise
    except Exception as error:
        said = str(error).partition("\n")[0]
        raise UsageError(f"{where} failed", why=f"{type(error).__name__}: {said}"[:300]) from error


def stated_fingerprint(function: Any) -> str | None:
    """The fingerprint that a function says its data has."""
    found = getattr(function, "fingerprint", None)
    return str(found() if callable(found) else found) if found is not None else None


def _function(module: ModuleType, name: str, module_name: str) -> Any:
    found = getattr(module, name, None)
    if not callable(found):
        known = [each for each in vars(module) if each[0] != "_" and callable(vars(module)[each])]
        raise NotFound(f"{module_name} has no function `{name}`", did_you_mean=nearest(name, known))
    return found


def columns_of(returned: Any, where: str) -> dict[str, Column]:
    """x, (x, y), arrays by name, or an iterator over batches of these, as named columns."""
    if isinstance(returned, Mapping):
        return {str(name): Held(f"{name} of {where}", _rows_of(v)) for name, v in returned.items()}
    if isinstance(returned, tuple) and len(returned) == 2:
        return {name: Held(f"{name} of {where}", _rows_of(v)) for name, v in zip("xy", returned)}  # noqa: B905
    if isinstance(returned, Iterator):
        return _spooled(returned, where)
    return {"x": Held(f"x of {where}", _rows_of(returned))}


def _spooled(batches: Iterator[Any], where: str) -> dict[str, Column]:
    """Batches of (x, y) or of x one after the other, kept so that they can be read again."""
    found: dict[str, Spooled] = {}
    for number, batch in enumerate(batches):
        parts = batch if isinstance(batch, tuple) else (batch,)
        rows = {name: _rows_of(part) for name, part in zip("xy", parts, strict=False)}
        if not number:
            found = {n: Spooled(f"{n} of {where}", r.dtype, r.shape[1:]) for n, r in rows.items()}
        if rows.keys() != found.keys() or len(parts) > 2:
            raise UsageError(f"batch {number} of {where} differs from the first")
        for name, each in rows.items():
            column = found[name]
            fits = np.can_cast(each.dtype, column.dtype, "same_kind")
            if each.shape[1:] != column.shape or not fits:
                raise UsageError(f"batch {number} of {where} differs from the first")
            column.add(each)
    return dict(found)


def _rows_of(value: Any) -> Any:
    array = np.asarray(value)
    if array.dtype.kind not in "biufUS" or not array.ndim:
        raise UsageError(
            f"an array of {array.dtype} with {array.ndim} axes is not a column of rows",
            why="the function returns x, (x, y), a dict of arrays, or yields batches of these",
        )
    return array
