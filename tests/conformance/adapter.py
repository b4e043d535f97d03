"""What every weight adapter must do: subclass `AdapterSuite` in the adapter's own test file."""

from __future__ import annotations

import contextlib
import io
import os
import random
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import ClassVar

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from dlv.adapters.checkpoint import Adapter, Checkpoint, Tensor
from dlv.dtypes import ITEM_BYTES
from dlv.errors import Damaged, DlvError, NotFound, UsageError

Content = tuple[str, tuple[int, ...], bytes]  # dtype, shape, bytes

SHAPES: list[tuple[int, ...]] = [(), (1,), (7,), (0,), (0, 3), (2, 3), (3, 1, 2), (1, 1, 1, 1, 1)]

NAMES = st.from_regex(r"[A-Za-zäµ_][A-Za-z0-9_]{0,8}(\.[A-Za-z0-9_]{1,8}){0,3}", fullmatch=True)


def random_bytes(dtype: str, shape: Sequence[int], seed: int) -> bytes:
    """Any bit pattern: NaNs with payloads, negative zeros and denormals among them."""
    size = ITEM_BYTES[dtype]
    for side in shape:
        size *= side
    raw = random.Random(seed).randbytes(size)
    return bytes(byte & 1 for byte in raw) if dtype == "bool" else raw


def in_memory(name: str, content: Content, tied: str | None = None) -> Tensor:
    dtype, shape, data = content
    return Tensor(name, dtype, shape, len(data), lambda: data, tied=tied)


class AdapterSuite:
    """`adapter` is the module, `dtypes` those that the format can hold."""

    adapter: ClassVar[Adapter]
    dtypes: ClassVar[tuple[str, ...]]
    exact: ClassVar[bool] = True  # what `save` wrote comes back byte for byte

    @pytest.fixture(autouse=True)
    def _folder(self, tmp_path: Path) -> Iterator[None]:
        self.folder = tmp_path
        yield
        for link in Path("/proc/self/fd").iterdir():
            with contextlib.suppress(OSError):
                target = link.readlink()
                assert tmp_path not in target.parents, f"{target} was left open"

    def save(self, tensors: Sequence[Tensor], metadata: dict[str, str] | None = None) -> Path:
        path = self.folder / f"saved{self.adapter.SUFFIX}"
        with path.open("wb") as out:
            self.adapter.save(out, tensors, metadata or {})
        return path

    @contextlib.contextmanager
    def opened(self, path: Path) -> Iterator[Checkpoint]:
        checkpoint = self.adapter.open(str(path))
        try:
            yield checkpoint
        finally:
            checkpoint.close()

    def contents(self, path: Path) -> dict[str, Content]:
        with self.opened(path) as checkpoint:
            found = {t.name: (t.dtype, t.shape, bytes(t.read())) for t in checkpoint.tensors}
            assert len(found) == len(checkpoint.tensors)
            for tensor in checkpoint.tensors:
                assert tensor.nbytes == len(found[tensor.name][2])
                if tensor.part is not None:
                    parts = [
                        tensor.part(start, min(7, tensor.nbytes - start))
                        for start in range(0, tensor.nbytes, 7)
                    ]
                    assert b"".join(parts) == found[tensor.name][2]
        return found

    def restored(self, path: Path) -> bytes:
        out = io.BytesIO()
        with self.opened(path) as checkpoint:
            assert checkpoint.skeleton is not None
            self.adapter.restore(out, checkpoint.skeleton, checkpoint.tensors)
        return out.getvalue()

    def check_round_trip(self, tree: dict[str, Content]) -> None:
        path = self.save([in_memory(name, content) for name, content in tree.items()])
        assert self.contents(path) == tree
        with self.opened(path) as checkpoint:
            assert checkpoint.format == self.adapter.FORMAT
            assert checkpoint.exact == self.exact
        if self.exact:
            assert self.restored(path) == path.read_bytes()

    @property
    def small(self) -> Path:
        """One file of two tensors, to be damaged."""
        dtype = self.dtypes[-1]
        shapes = {"first": (2, 3), "second": (4,)}
        return self.save(
            [in_memory(n, (dtype, s, random_bytes(dtype, s, 1))) for n, s in shapes.items()]
        )

    def test_every_dtype_and_shape(self) -> None:
        tree = {
            f"{dtype}.{index}": (dtype, shape, random_bytes(dtype, shape, index))
            for dtype in self.dtypes
            for index, shape in enumerate(SHAPES)
        }
        self.check_round_trip(tree)

    def test_no_tensors(self) -> None:
        self.check_round_trip({})

    def test_random_trees(self) -> None:
        contents = st.builds(
            lambda dtype, shape, seed: (dtype, shape, random_bytes(dtype, shape, seed)),
            st.sampled_from(self.dtypes),
            st.lists(st.integers(0, 5), max_size=4).map(tuple),
            st.integers(0, 1 << 30),
        )

        @settings(max_examples=30, deadline=None, suppress_health_check=list(HealthCheck))
        @given(st.dictionaries(NAMES, contents, max_size=6))
        def run(tree: dict[str, Content]) -> None:
            self.check_round_trip(tree)

        run()

    def test_saving_twice_gives_the_same_bytes(self) -> None:
        first = self.small.read_bytes()
        assert self.small.read_bytes() == first

    def test_reading_again_and_from_threads(self) -> None:
        dtype = self.dtypes[-1]
        tree = {f"t{i}": (dtype, (50, i), random_bytes(dtype, (50, i), i)) for i in range(20)}
        path = self.save([in_memory(name, content) for name, content in tree.items()])
        with self.opened(path) as checkpoint, ThreadPoolExecutor(8) as pool:
            work = checkpoint.tensors * 10
            for tensor, data in zip(work, pool.map(lambda t: bytes(t.read()), work), strict=True):
                assert data == tree[tensor.name][2]

    def test_tied_tensors_are_written_in_full(self) -> None:
        dtype = self.dtypes[-1]
        content = (dtype, (3, 2), random_bytes(dtype, (3, 2), 5))
        path = self.save([in_memory("a", content), in_memory("b", content, tied="a")])
        assert self.contents(path) == {"a": content, "b": content}
        if self.exact:
            assert self.restored(path) == path.read_bytes()

    def test_unknown_dtype(self) -> None:
        tensor = in_memory("odd.one", ("raw:NOPE", (2,), b"ab"))
        with pytest.raises(UsageError, match=r"odd\.one|raw:NOPE"):
            self.save([tensor])

    def test_two_tensors_of_one_name(self) -> None:
        dtype = self.dtypes[-1]
        tensor = in_memory("a", (dtype, (), random_bytes(dtype, (), 1)))
        with pytest.raises(UsageError, match="a"):
            self.save([tensor, tensor])

    def test_wrong_length_is_never_written_silently(self) -> None:
        size = ITEM_BYTES[self.dtypes[-1]] * 4
        tensor = Tensor("a", self.dtypes[-1], (4,), size, lambda: bytes(size - 1))
        with pytest.raises(DlvError):
            self.save([tensor])

    def test_restore_needs_the_right_tensors(self) -> None:
        if not self.exact:
            pytest.skip("the format is not restored")
        with self.opened(self.small) as checkpoint:
            skeleton = checkpoint.skeleton
            assert skeleton is not None
            with pytest.raises(DlvError):
                self.adapter.restore(io.BytesIO(), skeleton, checkpoint.tensors[:1])
            for end in range(len(skeleton)):
                with pytest.raises(DlvError):
                    self.adapter.restore(io.BytesIO(), skeleton[:end], checkpoint.tensors)

    def test_missing_file(self) -> None:
        with pytest.raises(NotFound):
            self.adapter.open(str(self.folder / "none"))

    def test_every_cut(self) -> None:
        whole = self.small.read_bytes()
        path = self.folder / "cut"
        for end in range(len(whole)):
            path.write_bytes(whole[:end])
            with pytest.raises(DlvError):
                self.contents(path)

    def test_appended_bytes(self) -> None:
        path = self.small
        path.write_bytes(path.read_bytes() + b"\0")
        with pytest.raises(DlvError):
            self.contents(path)

    def test_flipped_bits_give_typed_errors_only(self) -> None:
        whole = self.small.read_bytes()
        path = self.folder / "flipped"
        dice = random.Random(7)
        for _ in range(300):
            changed = bytearray(whole)
            for _ in range(dice.choice([1, 1, 2, 5])):
                changed[dice.randrange(len(changed))] ^= 1 << dice.randrange(8)
            path.write_bytes(changed)
            with contextlib.suppress(DlvError):
                self.contents(path)
                if self.exact:
                    assert self.restored(path) == changed

    def test_file_cut_while_open(self) -> None:
        dtype = self.dtypes[-1]
        path = self.save([in_memory("a", (dtype, (9999,), random_bytes(dtype, (9999,), 1)))])
        with self.opened(path) as checkpoint:
            os.truncate(path, 2000)
            with pytest.raises(Damaged):
                checkpoint.tensors[0].read()
            if checkpoint.tensors[0].part is not None:
                with pytest.raises(Damaged):
                    checkpoint.tensors[0].part(5000, 10)
