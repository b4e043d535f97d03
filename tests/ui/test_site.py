"""The pages as a program sees them: who may ask, what comes back, errors, nothing changed."""

from __future__ import annotations

import hashlib
import json
import random
import re
import signal
import socket
import subprocess
import sys
import urllib.error
import urllib.parse
import urllib.request
from pathlib import Path

import jsonschema
import pytest

import dlv.ui.serving as serving
from dlv.ui.gate import POLICY
from tests.commands.conftest import SCHEMAS
from tests.commands.test_reports import Page
from tests.ui.conftest import Running, pages


def state(folder: Path) -> str:
    """Everything in the repository but caches and what SQLite keeps beside its files."""
    found = hashlib.sha256()
    for path in sorted((folder / ".dlv").rglob("*")):
        name = path.relative_to(folder).as_posix()
        if (
            path.is_file()
            and "cache" not in name
            and not re.search(r"-(wal|shm)$|lock$|live", name)
        ):
            found.update(name.encode() + path.read_bytes())
    return found.hexdigest()


def test_every_page_answers_and_nothing_changes(server: Running, demo: Path) -> None:
    before = state(demo)
    for path in pages(demo):
        status, text, headers = server.get(path)
        wanted = 404 if path in ("/v/nothing", "/nowhere") else 200
        assert status == wanted, (path, text[-500:])
        assert headers["Content-Security-Policy"] == POLICY
        assert headers["X-Content-Type-Options"] == "nosniff"
        assert headers["Referrer-Policy"] == "no-referrer"
        if path.startswith(("/rows", "/statistics")):
            text = f"<!doctype html><table>{text}</table>"
        page = Page(text)
        assert page.handlers == []
        assert all(each.startswith(("/", "data:,")) for each in page.loads), path
        assert "Traceback" not in text
    assert state(demo) == before


def test_hostile_names_are_text(hostile: Running, hostile_once: Path) -> None:
    for path in pages(hostile_once):
        status, text, _ = hostile.get(path)
        assert status in (200, 404), path
        assert "<img src=x" not in text, path
        assert "\u202e" not in re.sub(r'(?:value|data-\w+)="[^"]*"', "", text), path
        if not path.startswith(("/rows", "/statistics")):
            Page(text)


@pytest.mark.parametrize("path", ["/", "/data/curves?v=lenet@1", "/static/style.css"])
def test_without_the_token_nothing_is_told(server: Running, path: str) -> None:
    for header in ("Bearer", "Bearer x", "Basic abc"):
        status, text, _ = server.get(path, Authorization=header)
        assert status == 403
        assert "lenet" not in text


def test_another_host_is_refused(server: Running) -> None:
    for host in ("evil.example", "evil.example:80", "127.0.0.1:1"):
        assert server.get("/", Host=host)[0] == 403


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "PATCH", "OPTIONS"])
def test_pages_are_only_read(server: Running, method: str) -> None:
    assert server.get("/", method=method)[0] in (403, 405)


def test_the_token_becomes_a_cookie(server: Running) -> None:
    status, text, headers = server.get(
        f"/?token={server.token}", Authorization="x", Accept="text/html"
    )
    assert status == 200
    assert "HttpOnly; SameSite=Strict" in headers["Set-Cookie"]
    assert "lenet" not in text
    cookie = headers["Set-Cookie"].partition(";")[0]
    assert server.get("/", Authorization="x", Cookie=cookie)[0] == 200


@pytest.mark.parametrize(
    ("path", "status"),
    [
        ("/v/lenet@99", 404),
        ("/v/", 400),
        ("/v/../../etc/passwd", 400),
        ("/file/lenet@1?path=../../../etc/passwd", 404),
        ("/file/lenet@1", 404),
        ("/static/../site.py", 404),
        ("/static/site.py", 404),
        ("/static/uplot.LICENSE", 404),
        ("/rows?from=x", 400),
        ("/rows?from=999999&count=99999", 200),
        ("/compare?v=lenet@1&v=nothing", 404),
        ("/compare?" + "&".join(["v=lenet@1"] * 9), 400),
        ("/sweeps/abcdef", 404),
        ("/jobs/abcdef", 404),
        ("/network/lenet@99", 404),
        ("/data/curves?v=lenet@1&steps=9:1", 400),
        ("/data/curves?v=lenet@1&metric=nothing", 404),
        ("/data/curves?metric=loss", 400),
        ("/data/live?folder=7", 404),
        ("/live?folder=-1", 400),
        ("/complete?text=" + "a" * 3000, 200),
    ],
)
def test_bad_addresses_have_their_answer(server: Running, path: str, status: int) -> None:
    found, text, _ = server.get(path)
    assert found == status, text
    assert "Traceback" not in text
    assert "root:" not in text


PATHS = (
    *("/", "/rows", "/v/{}", "/file/{}", "/statistics/{}", "/network/{}", "/compare", "/query"),
    *("/complete", "/sweeps", "/sweeps/{}", "/evaluate", "/jobs/{}", "/live", "/data/curves"),
    *("/data/live", "/static/{}", "/{}"),
)
KEYS = (
    *("where", "sort", "columns", "names", "from", "count", "v", "q", "explain", "text", "ref"),
    *("data", "folder", "seen", "metric", "steps", "path", "all", "fold", "show"),
)
WORDS = (
    *("lenet", "lenet@1", "lenet@99", "HEAD~1", "@best:loss", "..", "%00", "<script>", "\u202e"),
    *("'", '"', "a" * 400, "-1", "1e9", "NaN", "select m", "select m where", "loss", "loss@10"),
    *("define x as select m", "accuracy > 0", "/etc/passwd", "python:os:system", "9" * 30, ""),
)


def test_no_address_makes_it_fail_or_change(server: Running, demo: Path) -> None:
    before = state(demo)
    lot = random.Random(0)
    for _ in range(400):
        word = urllib.parse.quote(lot.choice(WORDS), safe=lot.choice(["", "@/:~%"]))
        path = lot.choice(PATHS).format(word)
        query = urllib.parse.urlencode(
            [(lot.choice(KEYS), lot.choice(WORDS)) for _ in range(lot.randint(0, 4))]
        )
        status, text, _ = server.get(f"{path}?{query}")
        assert status in (200, 400, 404), (path, query, text[-400:])
        assert "internal:" not in text
    assert state(demo) == before


def test_curves_are_data(server: Running) -> None:
    status, text, _ = server.get("/data/curves?v=lenet@1&v=lenet@2")
    assert status == 200
    found = json.loads(text)["metrics"]
    assert [line["label"] for line in found["loss"]] == ["lenet@1", "lenet@2"]
    line = found["loss"][0]
    assert len(line["steps"]) == len(line["values"]) == len(line["walls"])
    status, text, _ = server.get("/data/curves?v=lenet@1&metric=loss&steps=10:20")
    steps = json.loads(text)["metrics"]["loss"][0]["steps"]
    assert steps
    assert min(steps) >= 10
    assert max(steps) <= 20


def test_completion_knows_the_grammar_and_the_names(server: Running) -> None:
    def ask(words: str) -> list[str]:
        query = urllib.parse.quote(words)
        return [item["text"] for item in json.loads(server.get(f"/complete?text={query}")[1])]

    assert "select" in " ".join(ask("sel"))
    assert any("loss" in word for word in ask('select m where m["lo'))


def result(server: Running, path: str) -> str:
    """What a page that begins a job shows in the end."""
    _, text, _ = server.get(path)
    (name,) = set(re.findall(r"/jobs/[\w-]+", text))
    for _ in range(200):
        status, text, _ = server.get(name)  # which waits for a moment
        if status == 200:
            return text
        assert status == 202
    raise AssertionError(text)


def test_an_evaluation_goes_on_beside_the_page(server: Running, demo: Path) -> None:
    before = state(demo)
    text = result(server, "/evaluate?ref=lenet@1&data=test.npz")
    assert "confusion" in text
    assert "accuracy" in text
    assert "data:image/png;base64," in text  # what the wrong predictions look like
    assert state(demo) == before  # nothing is saved


def test_an_evaluation_reads_what_is_offered_alone(server: Running) -> None:
    assert "no data set" in result(server, "/evaluate?ref=lenet@1&data=/etc/passwd")


def test_a_plan_is_measured_on_request(server: Running) -> None:
    assert "this plan" in result(server, "/storage?plan=1&alpha=2")
    assert "not a number" in result(server, "/storage?plan=1&alpha=x")
    assert "already the fastest" in result(server, "/storage?plan=1&alpha=0.5")


def test_tensorboard_is_one_click_away(server: Running) -> None:
    pytest.importorskip("tensorboard")
    request = urllib.request.Request(f"{server.root}/tensorboard")
    request.add_header("Authorization", f"Bearer {server.token}")

    class Stay(urllib.request.HTTPRedirectHandler):
        def redirect_request(self, *_: object) -> None:
            return None

    with pytest.raises(urllib.error.HTTPError) as caught:
        urllib.request.build_opener(Stay).open(request, timeout=60)
    with caught.value as error:
        address = error.headers["Location"]
        assert error.code == 303
    with urllib.request.urlopen(address, timeout=60) as answer:
        assert answer.status == 200


def test_the_page_begins_where_it_is_asked_to(demo: Path) -> None:
    for words, page in ((["lenet@2"], "/v/lenet@2"), (["lenet@1", "lenet@2"], "/compare")):
        running = Running(demo, *words)
        try:
            assert running.base.startswith(f"{running.root}{page}")
            assert running.get(running.base.removeprefix(running.root))[0] == 200
        finally:
            assert running.stop()[0] == 0


def test_serve_opens_no_browser(demo: Path) -> None:
    command = [sys.executable, "-m", "dlv", "serve", "--port", "0"]
    process = subprocess.Popen(command, cwd=demo, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    assert process.stdout.readline().startswith("http://127.0.0.1:")
    process.terminate()
    process.communicate(timeout=30)
    assert process.returncode == 0


def test_it_ends_quietly(demo: Path) -> None:
    running = Running(demo)
    assert running.get("/")[0] == 200
    running.process.send_signal(signal.SIGINT)
    _, told = running.process.communicate(timeout=30)
    assert running.process.returncode == 0
    assert "Traceback" not in told


@pytest.mark.parametrize(
    ("words", "code", "message"),
    [
        (["nothing@1"], 4, "no"),
        (["nothing/"], 4, "no such directory"),
        (["--port", "70000"], 2, "70000"),
        (["--host", "192.0.2.1"], 2, "cannot listen"),
    ],
)
def test_what_cannot_be_served(demo: Path, words: list[str], code: int, message: str) -> None:
    command = [sys.executable, "-m", "dlv", "ui", "--no-open", *words]
    found = subprocess.run(command, cwd=demo, capture_output=True, text=True, timeout=60)
    assert found.returncode == code, found.stderr
    assert message in found.stderr
    assert "Traceback" not in found.stderr


def test_a_port_that_is_taken(demo: Path) -> None:
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        port = str(other.getsockname()[1])
        command = [sys.executable, "-m", "dlv", "ui", "--no-open", "--port", port]
        found = subprocess.run(command, cwd=demo, capture_output=True, text=True, timeout=60)
    assert found.returncode == 5
    assert "is taken" in found.stderr


def test_answers_do_not_wait_for_the_client() -> None:
    """Head and body are two writes; the second must not wait for what acknowledges the first."""
    with serving.bound("127.0.0.1", 0) as listening:
        listening.listen()
        with socket.create_connection(listening.getsockname()), listening.accept()[0] as line:
            assert line.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)


def test_outside_of_a_repository(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "dlv", "ui", "--no-open"]
    found = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=60)
    assert found.returncode == 3


def test_json_is_one_address(demo: Path) -> None:
    command = [sys.executable, "-m", "dlv", "ui", "--no-open", "--port", "0", "--json"]
    process = subprocess.Popen(command, cwd=demo, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    lines: list[str] = []
    while not lines or lines[-1].strip() != "}":
        lines.append(process.stdout.readline())
    process.terminate()
    process.communicate(timeout=30)
    document = json.loads("".join(lines))
    jsonschema.validate(document, json.loads((SCHEMAS / "ui.json").read_text()))
    assert document["url"].startswith("http://127.0.0.1:")
