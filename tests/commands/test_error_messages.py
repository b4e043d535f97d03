"""Sixty things that go wrong, and what dlv says: one sentence, a cause if needed, a next step."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.commands.conftest import SNAPSHOTS, normalise

Dlv = Callable[..., Any]

# Each line is a command in the repository of `filled`, beside broken.safetensors and a pickle.
SITUATIONS = """
add
add nowhere.pt
add broken.safetensors
add evil.pkl
add /etc/hostname
add config.json --as weight
add --factory train.py
add --input-shape 1,2 train.py
commit
commit -m
commit -m First --parent nope
commit --amend
commit -m First --param lr
commit -m First --quantize fp61 --allow-empty
status --shorrt
list nope
list --sort nope
list --where accuracy
list --where lr=1 or lr=2
list --since yesterday
log nope
show lent
show lenet@9
show lenet@2:trian.py
show lenet@2 --tensor conv1.wieght
desc lenet@1/150
desc lenet --planes 2
diff lenet@1 nope
diff lenet@1 lenet@2 --layer nope
diff lenet@1 lenet@2 --format xml
metrics lenet --metric los
metrics lenet --json --format csv
plots lenet -o curves.pdf
plots lenet --open
tag lenet
tag good nope
tag --delete good
rm lenet
rm lenet@9
rm lenet@2 --checkpoints ten
mv nope other
mv lenet lenet-wide
copy lenet@1 lenet
copy lenet@1/100 other
copy lenet@1 deep --set conv9.out=3
copy lenet@1 deep --insert conv1=RELUU()
checkout nope
checkout config.json
checkout ./train.py
checkout -b topic
reset --hard
log -p
checkout lenet@1 --planes 2
checkout lenet@1 trian.py
export lenet@1 w.mat
export
eval lenet nowhere.npz
eval lenet
eval lenet --strict
query
query nope
query select m where
query select m where m["acc"] >
quantize lenet --to fp61
archive --explain nope
gc --keep-best loss
gc --restore nope
fsck --from elsewhere
undo --op 99
config nope.key 1
config gc.grace 3
import mlruns
trials nope
branch topic
push
help nope
""".strip().splitlines()

VERBS = re.compile(
    r"(dlv |to |did you mean |give |use |save |choose |run |write |name |put |rename |undo |"
    r"commit |check |edit |quote |known|always there|copy |move |add |quit |pip |open |install )",
    re.IGNORECASE,
)


@pytest.fixture
def troubled(filled: Path) -> Path:
    (filled / "broken.safetensors").write_bytes(b"\x40\0\0\0\0\0\0\0{}")
    (filled / "evil.pkl").write_bytes(b"\x80\x04\x8c\x02os\x8c\x06system\x93.")
    return filled


def words(line: str) -> list[str]:
    """The words of a command; a query and a condition are one."""
    head, *rest = line.split(" ")
    if head == "query" and rest and rest[0] == "select":
        return [head, " ".join(rest)]
    if rest[:1] == ["--where"]:
        return [head, "--where", " ".join(rest[1:])]
    return [head, *rest]


def test_what_is_said(
    dlv: Dlv, troubled: Path, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    """All of it on one page, so that it is read as a whole when it changes."""
    told = []
    for line in SITUATIONS:
        result = dlv(*words(line))
        assert result.code in (2, 4, 5, 6, 9), (line, result.code, result.stdout)
        told.append(f"$ dlv {line}\nexit {result.code}\n{result.stderr}")
    assert len(told) >= 60
    found = normalise("\n".join(told), tmp_path, troubled)
    page = SNAPSHOTS / "error_messages.txt"
    if request.config.getoption("--update-snapshots"):
        page.write_text(found, encoding="utf-8")
    assert found == page.read_text(encoding="utf-8")


@pytest.mark.parametrize("line", SITUATIONS)
def test_its_form(dlv: Dlv, troubled: Path, line: str) -> None:
    """One short sentence without a full stop; a hint that can be followed; nothing twice."""
    result = dlv("--json", *words(line))
    error = json.loads(result.stderr.strip().splitlines()[-1])["error"]
    message, why, hint = error["message"], error["why"] or "", error["hint"] or ""
    assert "\n" not in message
    assert not message.endswith(".")
    assert len(message) <= 120, message
    assert why != message
    assert "Traceback" not in result.stderr
    assert not hint or VERBS.match(hint), hint
    assert hint or why or error["did_you_mean"] or len(message.split()) > 3
