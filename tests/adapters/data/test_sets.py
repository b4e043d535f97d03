"""Data sets: what is read from each form, and what is refused."""

from __future__ import annotations

import io
import tempfile
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

import dlv.adapters.data.columns as columns
from dlv.adapters.data.sets import Data, Wanted, fingerprint, open_data
from dlv.adapters.data.settings import Settings
from dlv.errors import Damaged, DlvError, NotFound, UnsafeInput, UsageError

Array = NDArray[Any]
ONE = [Wanted("x", (1, 2, 2))]
X = np.arange(40, dtype=np.float32).reshape(10, 1, 2, 2)
Y = np.arange(10) % 3


def opened(path: object, *, wanted: list[Wanted] = ONE, **said: Any) -> Data:
    return open_data(str(path), Settings.from_table(said), wanted)


def rows_of(found: Data, name: str = "x", size: int = 4) -> Array:
    column = found.inputs[name]
    starts = range(0, found.count, size)
    return np.concatenate([column.read(at, min(at + size, found.count)) for at in starts])


def labels_of(found: Data, size: int = 3) -> Array:
    assert found.labels is not None
    starts = range(0, found.count, size)
    return np.concatenate([found.labels.read(at, min(at + size, found.count)) for at in starts])


def saved(path: Path, form: str, **arrays: Array) -> Path:
    save: Any = np.savez_compressed if form == "compressed" else np.savez
    save(path, **arrays)
    return path


class TestArchives:
    @pytest.mark.parametrize("form", ["stored", "compressed"])
    @pytest.mark.parametrize("order", ["C", "F"])
    @pytest.mark.parametrize("dtype", ["<f4", ">f4", "<f8", ">i2", "u1", "?", "<f2"])
    def test_every_array_comes_as_it_was_saved(
        self, tmp_path: Path, form: str, order: Any, dtype: str
    ) -> None:
        x = np.asarray(X, dtype, order=order)
        found = opened(saved(tmp_path / "d.npz", form, x=x, y=Y))
        assert found.count == 10
        for _ in range(2):  # it may be gone through again
            assert np.array_equal(rows_of(found), x)
            assert np.array_equal(labels_of(found), Y)
        column = found.inputs["x"]
        assert column.dtype == np.dtype(dtype).newbyteorder("=")
        assert np.array_equal(column.read(7, 9), x[7:9])
        assert np.array_equal(column.read(2, 3), x[2:3])

    @settings(max_examples=30, deadline=None)
    @given(st.lists(st.tuples(st.integers(0, 30), st.integers(0, 30)), max_size=8), st.booleans())
    def test_stretches_in_any_order(self, wanted: list[tuple[int, int]], packed: bool) -> None:
        x = np.random.default_rng(0).normal(size=(30, 3))
        with io.BytesIO() as out:
            (np.savez_compressed if packed else np.savez)(out, x=x)
            data = out.getvalue()
        path = Path(self_made(data))
        column = opened(path, wanted=[Wanted("x", (3,))]).inputs["x"]
        for start, stop in wanted:
            stop = max(start, stop)
            assert np.array_equal(column.read(start, stop), x[start:stop])
        path.unlink()

    @pytest.mark.parametrize(
        ("inputs", "labels"),
        [("X", "Y"), ("images", "labels"), ("data", "targets"), ("x_test", "y_test")],
    )
    def test_usual_names(self, tmp_path: Path, inputs: str, labels: str) -> None:
        arrays: dict[str, Array] = {labels: Y, inputs: X}
        path = saved(tmp_path / "d.npz", "stored", **arrays)
        assert np.array_equal(rows_of(opened(path)), X)
        assert np.array_equal(labels_of(opened(path)), Y)

    def test_named_arrays(self, tmp_path: Path) -> None:
        path = saved(tmp_path / "d.npz", "stored", first=X, second=X + 1, truth=Y)
        found = opened(path, inputs="second", labels="truth")
        assert np.array_equal(rows_of(found), X + 1)
        assert np.array_equal(labels_of(found), Y)
        with pytest.raises(UsageError, match=r"cannot tell which array of d\.npz is the input `x`"):
            opened(path)
        with pytest.raises(UsageError, match="no array `secnd`") as error:
            opened(path, inputs="secnd")
        assert error.value.did_you_mean == ["second"]

    def test_several_inputs(self, tmp_path: Path) -> None:
        wanted = [Wanted("ids", (4,)), Wanted("mask", (4,))]
        path = saved(tmp_path / "d.npz", "stored", ids=X.reshape(10, 4), m=X.reshape(10, 4) * 2)
        with pytest.raises(UsageError, match="the input `mask`"):
            opened(path, wanted=wanted)
        found = opened(path, wanted=wanted, inputs={"mask": "m"})
        assert np.array_equal(rows_of(found, "mask"), X.reshape(10, 4) * 2)
        assert found.labels is None

    def test_without_labels(self, tmp_path: Path) -> None:
        assert opened(saved(tmp_path / "a.npz", "stored", anything=X)).labels is None
        path = saved(tmp_path / "b.npz", "stored", x=X, y=Y)
        assert opened(path, labels=False).labels is None

    def test_texts_are_numbered_in_order(self, tmp_path: Path) -> None:
        names = np.array(["cat", "ant", "bee", "cat", "ant", "bee", "ant", "ant", "bee", "cat"])
        path = saved(tmp_path / "d.npz", "stored", x=X, y=names)
        found = opened(path)
        assert found.classes == ("ant", "bee", "cat")
        assert labels_of(found).tolist() == [2, 0, 1, 2, 0, 1, 0, 0, 1, 2]
        found = opened(path, classes=["bee", "cat", "ant", "dog"])
        assert labels_of(found).tolist()[:3] == [1, 2, 0]
        with pytest.raises(UsageError, match=r"row 2 of y in d\.npz has an unknown label") as error:
            labels_of(opened(path, classes=["cat", "ant"]), 10)
        assert "'bee'" in str(error.value.why)

    def test_counts_must_agree(self, tmp_path: Path) -> None:
        path = saved(tmp_path / "d.npz", "stored", x=X, y=Y[:9])
        with pytest.raises(UsageError, match="different numbers of rows"):
            opened(path)

    def test_objects_are_never_loaded(self, tmp_path: Path) -> None:
        path = tmp_path / "d.npz"
        np.savez(path, x=np.array([{}, []], object))  # a pickle inside
        with pytest.raises(UnsafeInput, match="Python objects"):
            opened(path)

    @pytest.mark.parametrize("form", ["stored", "compressed"])
    def test_a_changed_byte_is_noticed(self, tmp_path: Path, form: str) -> None:
        x = np.random.default_rng(1).normal(size=(200, 50))
        path = saved(tmp_path / "d.npz", form, x=x)
        raw = bytearray(path.read_bytes())
        raw[len(raw) // 2] ^= 1
        path.write_bytes(raw)
        with pytest.raises(DlvError) as error:
            rows_of(opened(path, wanted=[Wanted("x", (50,))]))
        assert isinstance(error.value, Damaged)

    def test_a_size_that_is_not_there(self, tmp_path: Path) -> None:
        header = b"{'descr': '<f8', 'fortran_order': False, 'shape': (1000000000, 1000), }"
        header += b" " * (-(10 + len(header) + 1) % 64) + b"\n"
        head = b"\x93NUMPY\x01\x00" + len(header).to_bytes(2, "little") + header
        path = tmp_path / "d.npz"
        with zipfile.ZipFile(path, "w") as target:
            target.writestr("x.npy", head + bytes(100))
        with pytest.raises(Damaged, match="length"):
            opened(path)
        (tmp_path / "x.npy").write_bytes(head + bytes(100))
        with pytest.raises(Damaged, match="length"):
            opened(tmp_path / "x.npy")

    def test_rows_without_elements(self, tmp_path: Path) -> None:
        with pytest.raises(UsageError, match="empty"):
            opened(saved(tmp_path / "d.npz", "stored", x=np.empty((5, 0))))
        with pytest.raises(UsageError, match="no rows"):
            opened(saved(tmp_path / "e.npz", "stored", x=np.empty((0, 5))))

    def test_a_large_array_in_fortran_order(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(columns, "MOST_HELD", 100)
        path = saved(tmp_path / "d.npz", "stored", x=np.asfortranarray(X.reshape(10, 4)))
        with pytest.raises(UnsafeInput, match="Fortran"):
            opened(path)


def self_made(data: bytes) -> str:
    """A file of its own: hypothesis and tmp_path do not go together."""
    with tempfile.NamedTemporaryFile(suffix=".npz", delete=False) as file:
        file.write(data)
    return file.name


class TestPlainArrays:
    def test_labels_lie_beside(self, tmp_path: Path) -> None:
        np.save(tmp_path / "x.npy", X)
        np.save(tmp_path / "y.npy", Y)
        for where in (tmp_path / "x.npy", tmp_path):
            found = opened(where)
            assert np.array_equal(rows_of(found), X)
            assert np.array_equal(labels_of(found), Y)

    def test_labels_that_are_named(self, tmp_path: Path) -> None:
        np.save(tmp_path / "rows.npy", X)
        np.save(tmp_path / "truth.npy", Y)
        assert opened(tmp_path / "rows.npy").labels is None
        assert np.array_equal(labels_of(opened(tmp_path / "rows.npy", labels="truth.npy")), Y)
        with pytest.raises(NotFound):
            opened(tmp_path / "rows.npy", labels="nothing.npy")

    def test_a_single_number_is_no_data(self, tmp_path: Path) -> None:
        np.save(tmp_path / "x.npy", np.float32(1))
        with pytest.raises(UsageError, match="single number"):
            opened(tmp_path / "x.npy")


class TestCsv:
    def written(self, tmp_path: Path, text: str) -> Path:
        path = tmp_path / "d.csv"
        path.write_text(text)
        return path

    def read(self, tmp_path: Path, text: str, **said: Any) -> Data:
        return opened(self.written(tmp_path, text), wanted=[Wanted("x", (2,))], **said)

    @pytest.mark.parametrize("mark", [",", ";", "\t"])
    def test_numbers_and_labels(self, tmp_path: Path, mark: str) -> None:
        lines = ["a,label,b", "1,0,2.5", "", "-3e2,1,.5", "nan,2,inf"]
        found = self.read(tmp_path, "\r\n".join(lines).replace(",", mark))
        assert np.array_equal(
            rows_of(found), [[1, 2.5], [-300, 0.5], [np.nan, np.inf]], equal_nan=True
        )
        assert labels_of(found).tolist() == [0, 1, 2]
        assert labels_of(found).dtype == np.int64

    def test_the_last_column_is_the_label(self, tmp_path: Path) -> None:
        found = self.read(tmp_path, "a,b,kind\n1,2,cat\n3,4,ant\n")
        assert found.classes == ("ant", "cat")
        assert labels_of(found).tolist() == [1, 0]

    def test_blanks_around_labels_do_not_count(self, tmp_path: Path) -> None:
        found = self.read(tmp_path, "a,b,kind\n1,2, cat\n3,4,cat \n5,6,ant\n")
        assert found.classes == ("ant", "cat")
        assert labels_of(found).tolist() == [1, 1, 0]

    def test_fractions_are_values(self, tmp_path: Path) -> None:
        found = self.read(tmp_path, "a,b,y\n1,2,1\n3,4,0.5\n")
        assert labels_of(found).tolist() == [1.0, 0.5]
        assert labels_of(found).dtype == np.float64

    def test_columns_that_are_chosen(self, tmp_path: Path) -> None:
        text = "id,a,b,kind\nq1,1,2,0\nq2,3,4,1\n"
        found = self.read(tmp_path, text, columns=["b", "a"], labels="kind")
        assert rows_of(found).tolist() == [[2, 1], [4, 3]]
        with pytest.raises(UsageError, match="no column `c`"):
            self.read(tmp_path, text, columns=["c"])
        assert self.read(tmp_path, "a,b\n1,2\n", labels=False).labels is None

    @pytest.mark.parametrize(
        ("text", "message"),
        [
            ("a,b,y\n1,2,0\n1,x,0\n", "line 3: 'x' is not a number"),
            ("a,b,y\n1,2,0\n1,0\n", "line 3, has 2 cells"),
            ("a,b,y\n1,,0\n", "line 2: '' is not a number"),
            ("a,b,y\n1,2,\n", "line 2, has no label"),
            ("a,b,y\n1,1_0,0\n", "line 2: '1_0' is not a number"),
            ("1,2,3\n1,2,0\n", "no header"),
            ("", "no header"),
            ("a,a,y\n1,2,0\n", "twice"),
            ('a,b,y\n1,"2,0\n', "line 2, is not CSV"),
        ],
    )
    def test_damage_is_named_with_its_line(self, tmp_path: Path, text: str, message: str) -> None:
        with pytest.raises(Damaged) as error:
            self.read(tmp_path, text)
        assert message in error.value.message

    def test_bytes_that_are_no_text(self, tmp_path: Path) -> None:
        (tmp_path / "d.csv").write_bytes(b"a,b,y\n1,2,\xff\n")
        with pytest.raises(Damaged, match="line 2, is not UTF-8"):
            opened(tmp_path / "d.csv")

    def test_long_labels(self, tmp_path: Path) -> None:
        with pytest.raises(UnsafeInput, match="line 2: the label is too long"):
            self.read(tmp_path, f"a,b,y\n1,2,{'z' * 1000}\n")

    def test_many_rows_lie_on_disk(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(columns, "MOST_SPOOLED", 1000)
        rows = np.random.default_rng(0).normal(size=(3000, 2))
        text = "a,b,y\n" + "".join(
            f"{a!r},{b!r},{i % 7}\n" for i, (a, b) in enumerate(rows.tolist())
        )
        found = self.read(tmp_path, text)
        assert np.array_equal(rows_of(found), rows)
        assert labels_of(found).tolist() == [i % 7 for i in range(3000)]


class TestPreparation:
    def test_shape_scale_mean_and_std(self, tmp_path: Path) -> None:
        pixels = np.arange(120, dtype=np.uint8).reshape(10, 2, 2, 3)
        path = saved(tmp_path / "d.npz", "stored", x=pixels)
        wanted = [Wanted("x", (3, 2, 2))]
        assert rows_of(opened(path, wanted=wanted)).dtype == np.uint8
        found = opened(
            path, wanted=wanted, transpose=[2, 0, 1], scale="1/255", mean=[0.1, 0.2, 0.3], std=0.5
        )
        mean = np.array([0.1, 0.2, 0.3]).reshape(3, 1, 1)
        expected = (pixels.transpose(0, 3, 1, 2) * (1 / 255) - mean) / 0.5
        assert np.array_equal(rows_of(found), expected)
        assert found.inputs["x"].shape == (3, 2, 2)
        flat = opened(path, wanted=wanted, shape=[12], rows=4)
        assert np.array_equal(rows_of(flat), pixels.reshape(10, 12)[:4])

    @pytest.mark.parametrize(
        "said",
        [
            {"shape": [5]},
            {"transpose": [0, 0, 1]},
            {"mean": [1.0, 2.0, 3.0, 4.0, 5.0]},
            {"std": 0},
            {"shape": "x"},
            {"scale": "wide"},
            {"rows": 0},
            {"mode": "CMYK"},
            {"classes": ["a", "a"]},
            {"resize": [1, 2, 3]},
            {"inputs": 3},
            {"labels": 3},
        ],
    )
    def test_what_does_not_fit(self, tmp_path: Path, said: dict[str, Any]) -> None:
        path = saved(tmp_path / "d.npz", "stored", x=X)
        with pytest.raises(UsageError):
            opened(path, **said)

    def test_unknown_settings(self) -> None:
        with pytest.raises(UsageError, match=r"no setting data\.sclae") as error:
            Settings.from_table({"sclae": 2})
        assert error.value.did_you_mean[0] == "data.scale"


class TestImages:
    @pytest.fixture
    def folder(self, tmp_path: Path) -> Path:
        image: Any = pytest.importorskip("PIL.Image")
        rng = np.random.default_rng(0)
        for kind in ("cat", "ant"):
            (tmp_path / "set" / kind).mkdir(parents=True)
            for number in range(3):
                pixels = rng.integers(0, 256, (4, 6, 3), np.uint8)
                image.fromarray(pixels).save(tmp_path / "set" / kind / f"{number}.png")
        (tmp_path / "set" / "bee").mkdir()
        (tmp_path / "set" / "cat" / "notes.txt").write_text("not an image")
        return tmp_path / "set"

    def test_folders_are_classes(self, folder: Path) -> None:
        image: Any = pytest.importorskip("PIL.Image")
        found = opened(folder, wanted=[Wanted("x", (3, 4, 6))])
        assert found.classes == ("ant", "bee", "cat")
        assert labels_of(found).tolist() == [0, 0, 0, 2, 2, 2]
        rows = rows_of(found)
        assert rows.shape == (6, 3, 4, 6)
        assert rows.dtype == np.uint8
        expected = np.asarray(image.open(folder / "cat" / "0.png")).transpose(2, 0, 1)
        assert np.array_equal(rows[3], expected)

    @pytest.mark.parametrize(
        ("wanted", "shape"),
        [((4, 6, 3), (4, 6, 3)), ((1, 4, 6), (1, 4, 6)), ((4, 6), (4, 6)), (None, (3, 4, 6))],
    )
    def test_axes_and_channels_follow_the_network(
        self, folder: Path, wanted: Any, shape: tuple[int, ...]
    ) -> None:
        assert opened(folder, wanted=[Wanted("x", wanted)]).inputs["x"].shape == shape

    def test_resizing_is_asked_for(self, folder: Path) -> None:
        image: Any = pytest.importorskip("PIL.Image")
        image.new("L", (9, 9)).save(folder / "bee" / "0.png")
        wanted = [Wanted("x", (3, 4, 6))]
        with pytest.raises(UsageError, match="another size") as error:
            rows_of(opened(folder, wanted=wanted))
        assert "3×9×9 instead of 3×4×6" in str(error.value.why)
        found = opened(folder, wanted=wanted, resize=[5, 7])
        assert rows_of(found).shape == (7, 3, 5, 7)

    def test_hostile_images(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        (folder / "bee" / "a.png").write_bytes(b"\x89PNG\r\n\x1a\nbroken")
        with pytest.raises(Damaged, match=r"bee/a\.png is not an image"):
            rows_of(opened(folder))
        monkeypatch.setattr("dlv.adapters.data.settings.MOST_PIXELS", 10)
        with pytest.raises(UnsafeInput, match="too large"):
            rows_of(opened(folder))

    def test_an_empty_folder(self, tmp_path: Path) -> None:
        with pytest.raises(UsageError, match="has no data"):
            opened(tmp_path)

    def test_classes_that_are_told(self, folder: Path) -> None:
        found = opened(folder, classes=["cat", "dog", "ant", "bee"])
        assert sorted(set(labels_of(found).tolist())) == [0, 2]
        with pytest.raises(UsageError, match=r"none of data\.classes"):
            opened(folder, classes=["cat", "dog"])


class TestCode:
    @pytest.fixture
    def module(self, tmp_path: Path) -> Callable[[str], Path]:
        numbers = iter(range(100))

        def write(body: str) -> Path:
            name = f"rows_of_test_{next(numbers)}_{abs(hash(str(tmp_path)))}"
            path = tmp_path / f"{name}.py"
            path.write_text("import numpy as np\n" + body)
            return path

        return write

    def call(self, path: Path, function: str = "make") -> Data:
        where = f"python:{path.stem}:{function}"
        return open_data(where, Settings(), [Wanted("x", (2,))], path.parent)

    @pytest.mark.parametrize(
        "returned",
        [
            "np.ones((4, 2)), np.arange(4)",
            "{'x': np.ones((4, 2)), 'y': np.arange(4)}",
            "iter([(np.ones((3, 2)), [0, 1, 2]), (np.ones((1, 2)), [3])])",
        ],
    )
    def test_forms(self, module: Callable[[str], Path], returned: str) -> None:
        found = self.call(module(f"def make():\n    return {returned}\n"))
        assert rows_of(found).tolist() == np.ones((4, 2)).tolist()
        assert labels_of(found).tolist() == [0, 1, 2, 3]
        assert found.fingerprint is None

    def test_rows_alone_with_a_fingerprint(self, module: Callable[[str], Path]) -> None:
        body = "def make():\n    return [[1, 2], [3, 4]]\nmake.fingerprint = 'v7'\n"
        found = self.call(module(body))
        assert (found.labels, found.fingerprint) == (None, "v7")

    @pytest.mark.parametrize(
        ("body", "error"),
        [
            ("def make():\n    raise ValueError('no network here')\n", "no network here"),
            ("def make():\n    return 3\n", "not a column of rows"),
            ("def make():\n    return [{}, {}]\n", "not a column of rows"),
            ("import nothing_that_exists\n", "cannot be imported"),
            ("1 / 0\n", "cannot be imported"),
            ("made = 3\n", "no function `make`"),
            ("def make():\n    return iter([np.ones((1, 2)), np.ones((1, 3))])\n", "batch 1 of"),
        ],
    )
    def test_failures_are_told(self, module: Callable[[str], Path], body: str, error: str) -> None:
        with pytest.raises(DlvError) as raised:
            self.call(module(body))
        assert error in f"{raised.value.message} {raised.value.why}"

    def test_what_is_no_module(self) -> None:
        for where in ("python:", "python:module", "python:a:b:c"):
            with pytest.raises(UsageError, match="python:module:function"):
                opened(where)
        with pytest.raises(NotFound):
            opened("python:there_is_no_such_module:f")


def _read_whole(name: str, content: bytes) -> None:
    """Whatever the bytes are: rows, or an error that a person can read."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, name)
        path.write_bytes(content)
        try:
            found = opened(path, wanted=[Wanted("x", (2,))])
            rows_of(found)
            if found.labels is not None:
                labels_of(found)
        except DlvError:
            return


@settings(max_examples=100, deadline=None)
@given(
    st.text("0123456789.eE+-,;\t\n\r\"' abxy", max_size=60).map(str.encode) | st.binary(max_size=60)
)
def test_any_csv(content: bytes) -> None:
    _read_whole("d.csv", content)


@settings(max_examples=100, deadline=None)
@given(
    st.booleans(),
    st.lists(st.tuples(st.integers(0, 5000), st.integers(0, 255)), max_size=4),
    st.integers(0, 5000),
)
def test_any_archive(packed: bool, changes: list[tuple[int, int]], cut: int) -> None:
    with io.BytesIO() as out:
        save: Any = np.savez_compressed if packed else np.savez
        save(out, x=np.arange(60.0).reshape(30, 2), y=np.array(["a", "b"] * 15))
        raw = bytearray(out.getvalue())
    for at, byte in changes:
        raw[at % len(raw)] = byte
    _read_whole("d.npz", bytes(raw[:cut] if cut < len(raw) else raw))


def test_fingerprints_are_of_content(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / "1").write_bytes(b"x")
    (tmp_path / "b").mkdir()
    (tmp_path / "b" / "1").write_bytes(b"x")
    assert fingerprint(tmp_path / "a") == fingerprint(tmp_path / "b")
    (tmp_path / "b" / "1").rename(tmp_path / "b" / "2")
    assert fingerprint(tmp_path / "a") != fingerprint(tmp_path / "b")
    assert fingerprint(tmp_path / "a" / "1") == fingerprint(tmp_path / "b" / "2")


def test_what_is_no_data(tmp_path: Path) -> None:
    (tmp_path / "notes.md").write_text("words")
    with pytest.raises(UsageError, match="not data that dlv can read"):
        opened(tmp_path / "notes.md")
    with pytest.raises(NotFound):
        opened(tmp_path / "missing.npz")
