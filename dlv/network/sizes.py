"""Shapes with numbers, symbols and unknowns in them, and the arithmetic that inference needs."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from dlv.dataclass import dataclass
from dlv.errors import UsageError

# One axis: a length, a symbol such as "B", or None where it is not known.
Dim = int | str | None
Shape = tuple[Dim, ...]

MAX_RANK = 64


class ShapeError(UsageError):
    """Shapes that do not go together; `seen` and `wanted` say which."""

    def __init__(self, message: str, *, seen: str = "", wanted: str = "") -> None:
        super().__init__(message)
        self.seen = seen
        self.wanted = wanted


@dataclass(frozen=True)
class Product:
    """A product of lengths: the numbers multiplied out, the symbols sorted."""

    factor: int
    symbols: tuple[str, ...]


def text(shape: Sequence[Dim] | None) -> str:
    """A shape as people read it: `B×64×32×32`, `?` for what is not known, `scalar` for rank 0."""
    if shape is None:
        return "?"
    return "×".join("?" if dim is None else str(dim) for dim in shape) or "scalar"


def product(shape: Iterable[Dim]) -> Product | None:
    """All entries multiplied; None if one of them is unknown."""
    factor, symbols = 1, []
    for dim in shape:
        if dim is None:
            return None
        if isinstance(dim, str):
            symbols.append(dim)
        else:
            factor *= dim
    return Product(factor, tuple(sorted(symbols)))


def dim_of(value: Product | None) -> Dim:
    """A product as one axis, where it is a plain number or a plain symbol."""
    if value is None:
        return None
    if not value.symbols or value.factor == 0:
        return value.factor
    return value.symbols[0] if value.factor == 1 and len(value.symbols) == 1 else None


def elements(shape: Sequence[Dim] | None) -> int | None:
    """How many elements, if every entry is a number."""
    value = None if shape is None else product(shape)
    if value is None or value.symbols:
        return None
    return value.factor


def fits(seen: Sequence[Dim] | None, wanted: Sequence[Dim] | None) -> bool:
    """False only where two known numbers, or the ranks, differ."""
    if seen is None or wanted is None:
        return True
    return len(seen) == len(wanted) and all(map(same, seen, wanted))


def same(a: Dim, b: Dim) -> bool:
    return a == b or not (isinstance(a, int) and isinstance(b, int))


def axis_of(axis: int, rank: int, label: str) -> int:
    """A possibly negative axis as a position."""
    if not -rank <= axis < rank:
        raise ShapeError(
            f"{label} {axis} does not exist", seen=f"rank {rank}", wanted=f"{-rank}..{rank - 1}"
        )
    return axis % rank if rank else 0


def broadcast(shapes: Sequence[Shape]) -> Shape:
    """The common shape of an element-wise operation."""
    rank = max(len(shape) for shape in shapes)
    result: list[Dim] = []
    for position in range(-rank, 0):
        dims = {shape[position] for shape in shapes if -position <= len(shape)} - {1}
        lengths = [dim for dim in dims if isinstance(dim, int)]
        if len(lengths) > 1:
            raise ShapeError(
                "shapes cannot be broadcast together",
                seen=" and ".join(text(shape) for shape in shapes),
                wanted="equal lengths, or 1, on every axis",
            )
        if lengths:
            # A symbol or unknown beside a known length must be that length, or 1.
            result.append(lengths[0])
        else:
            result.append(1 if not dims else dims.pop() if len(dims) == 1 else None)
    return tuple(result)


def window(
    length: Dim, kernel: int, stride: int, pad: tuple[int, int], dilation: int, ceil: bool
) -> Dim:
    """Output length of a sliding window along one axis."""
    before, after = pad
    reach = dilation * (kernel - 1)
    if not isinstance(length, int):
        return length if stride == 1 and before + after == reach else None
    room = length + before + after - reach - 1
    if ceil:
        count = -(-room // stride) + 1
        # A window that would start in the padding behind the input is dropped.
        if (count - 1) * stride >= length + before:
            count -= 1
    else:
        count = room // stride + 1
    if count < 1:
        raise ShapeError(
            f"a window of {reach + 1} does not fit",
            seen=f"length {length} padded to {length + before + after}",
            wanted=f"at least {reach + 1}",
        )
    return count


def transposed(
    length: Dim, kernel: int, stride: int, pad: tuple[int, int], dilation: int, output_pad: int
) -> Dim:
    """Output length of a transposed convolution along one axis."""
    grown = dilation * (kernel - 1) + output_pad - pad[0] - pad[1]
    if not isinstance(length, int):
        return length if stride == 1 and grown == 0 else None
    result = (length - 1) * stride + grown + 1
    if result < 1:
        raise ShapeError(
            "the padding removes the whole output", seen=f"length {result}", wanted="at least 1"
        )
    return result


def refill(shape: Shape, size: Sequence[Dim]) -> Shape:
    """The shape after `view(size)`: at most one -1; None stands for a length known at run time."""
    holes = [position for position, dim in enumerate(size) if dim is None or dim == -1]
    if sum(1 for dim in size if dim == -1) > 1:
        raise ShapeError("only one length may be -1", seen=text(size), wanted="one -1 at most")
    have, fixed = product(shape), product(dim for dim in size if dim is not None and dim != -1)
    if len(holes) > 1 or have is None or fixed is None:
        return tuple(None if dim == -1 else dim for dim in size)
    try:
        rest = _divide(have, fixed)
    except ArithmeticError as error:
        raise ShapeError(
            "the number of elements changes", seen=text(shape), wanted=text(size)
        ) from error
    if not holes:
        if rest is not None and not rest.symbols and rest.factor != 1:
            raise ShapeError("the number of elements changes", seen=text(shape), wanted=text(size))
        return tuple(size)
    return (*size[: holes[0]], dim_of(rest), *size[holes[0] + 1 :])


def _divide(have: Product, by: Product) -> Product | None:
    """have / by; None where symbols do not cancel, ArithmeticError where it cannot be whole."""
    symbols = list(have.symbols)
    for symbol in by.symbols:
        if symbol not in symbols:
            return None
        symbols.remove(symbol)
    if by.factor == 0:
        if have.factor == 0 and not symbols:
            return None
        raise ArithmeticError
    whole, left = divmod(have.factor, by.factor)
    if left:
        # What a symbol stands for may hold the missing factor.
        if symbols:
            return None
        raise ArithmeticError
    return Product(whole, tuple(symbols))


def grouping(old: Shape, new: Shape) -> list[tuple[tuple[int, ...], tuple[int, ...]]] | None:
    """Which axes of a reshaped tensor are made of which: the smallest groups of equal size."""
    found: list[tuple[tuple[int, ...], tuple[int, ...]]] = []
    i = j = 0
    while i < len(old) or j < len(new):
        ours, theirs = [], []
        if i < len(old):
            ours.append(i)
            i += 1
        if j < len(new):
            theirs.append(j)
            j += 1
        while True:
            a, b = product(old[k] for k in ours), product(new[k] for k in theirs)
            if a is None or b is None:
                return None
            if a == b:
                break
            # Factors are compared with the symbols alike, so that the smaller side grows.
            less = (len(a.symbols), a.factor) < (len(b.symbols), b.factor)
            if less and i < len(old):
                ours.append(i)
                i += 1
            elif not less and j < len(new):
                theirs.append(j)
                j += 1
            elif i < len(old):
                ours.append(i)
                i += 1
            elif j < len(new):
                theirs.append(j)
                j += 1
            else:
                return None
        found.append((tuple(ours), tuple(theirs)))
    return found
