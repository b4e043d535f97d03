"""Runs one command of dlv again and again, each time killed or failed at another call.

`python -m tests.crash.driver < job` under shim.c: everything is imported once, then each run is
a fork in a process group of its own, in a fresh copy of the template. Prints a JSON line with
what was counted, then one per point: what was wrong afterwards (nothing, one hopes).
"""

from __future__ import annotations

import contextlib
import importlib
import io
import json
import os
import random
import re
import shutil
import signal
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import dlv.api as api
import dlv.cli as cli
import dlv.disk.user_files as user_files
from dlv.canonical import hash_bytes
from dlv.metadata import facts, matrices, versions
from dlv.metadata.database import SCHEMA_VERSION, Database
from dlv.repository.handle import Repository
from tests import released
from tests.crash import evaluated, powerloss, shim
from tests.crash.bugs import BUGS
from tests.crash.settings import SETTINGS
from tests.crash.verbs import PLACE

STATES = ("live", "removed", "undone", "recovered")
# They end with an entry in the log.
OPERATIONS = ("commit", "tag", "rm", "undo", "copy", "archive", "gc", "import")
IO_ERROR, INTERRUPTED = 8, 130


class Driver:
    def __init__(self, job: dict[str, Any]) -> None:
        self.template = Path(job["template"])
        self.command = [self._named(word) for word in job["command"]]
        self.between = [["gc", "-y"]] if "collected between" in job["settings"] else []
        self.bug: str | None = job.get("bug")
        self.reads: bool = job["reads"]
        self.piecemeal = "batches" in job["settings"]
        for name in job["settings"]:
            SETTINGS.get(name, lambda: None)()
        self.root = Path(os.environ["SHIM_BELOW"]) / "work"
        self.output = self.root.parent.with_suffix(".out")
        self.control = shim.Control(Path(os.environ["SHIM_CONTROL"]))
        # Once undisturbed: what there is before and after it.
        self.before: dict[str, Any] = {}
        self.after: dict[str, Any] = {}
        self.files: dict[str, str] = {}  # of the user, after it

    def _named(self, word: str) -> str:
        if word != PLACE:
            return word
        (place,) = (self.template / ".dlv" / "quarantine").iterdir()
        return place.name

    def fresh(self) -> None:
        shutil.rmtree(self.root, ignore_errors=True)
        shutil.copytree(self.template, self.root, symlinks=True)

    def act(self, mode: int, at: int, error: int = 0) -> int:
        """The command in a child: its exit code, negative if it was killed."""
        self.control.set(mode, at, error, reads=self.reads)
        child = os.fork()
        if not child:
            os.setpgid(0, 0)
            self._become_command()
            self.spoil()
            code = cli.run(self.command)
            sys.stdout.flush()
            os._exit(code)
        _, status = os.waitpid(child, 0)
        self.control.stop()
        return os.waitstatus_to_exitcode(status)

    def spoil(self) -> None:
        """Put the fault into dlv that the job asks for."""
        if self.bug is not None:
            BUGS[self.bug]()

    def _become_command(self) -> None:
        signal.signal(signal.SIGINT, signal.default_int_handler)
        os.chdir(self.root)
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        for path, number in ((str(self.output), 1), (f"{self.output}.err", 2)):
            os.dup2(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), number)
        sys.stdin, sys.stdout = open(0), open(1, "w")  # noqa: SIM115
        sys.stderr = open(2, "w", buffering=1)  # noqa: SIM115

    def point(self, mode: int, at: int, error: int) -> dict[str, Any]:
        self.fresh()
        code = self.act(mode, at, error)
        printed = self.output.read_text() if self.output.exists() else ""
        said = Path(f"{self.output}.err").read_text()
        problems: list[str] = []
        if self.control.retried:
            problems.append("after a refused fsync the same descriptor was synced again")
        problems += self._whole(done=code == 0)
        if code > 0:
            problems += self._as_before(code, said)
        if mode in (shim.BEFORE, shim.MIDDLE):
            problems += _child(self.root, lambda: self.after_kill(printed))
        else:
            codes = {shim.SHORT_FROM: (0,), shim.INTERRUPT: (0, INTERRUPTED)}
            allowed = codes.get(mode, (0, IO_ERROR))
            problems += _child(self.root, lambda: self.after_error(code, said, allowed))
        return {
            "mode": mode,
            "at": at,
            "error": error,
            "code": code,
            "failed": self.control.failed,
            "problems": problems,
        }

    def _whole(self, *, done: bool) -> list[str]:
        """Each of the user's files is the old one or the new one; when `done` the new one."""
        old, now = _files(self.template), _files(self.root)
        if done:
            wrong = {name for name in now | self.files if now.get(name) != self.files.get(name)}
            return [f"it was done, and {name} is not what it should be" for name in wrong]
        known = {name: (old.get(name), self.files.get(name)) for name in old | self.files | now}
        torn = [name for name, both in known.items() if now.get(name) not in both]
        return [f"neither the old {name} nor the new one is there" for name in torn]

    def _as_before(self, code: int, said: str) -> list[str]:
        """After an error nothing has changed, or it is said what has."""
        same = _files(self.root) == _files(self.template)
        return [] if same or "already" in said else [f"exit {code}, and files changed: {said}"]

    def power(self, count: int, seed: int) -> Iterator[dict[str, Any]]:
        """The command once, written down; then so many images of what the disk may hold."""
        record = shim.record_of(self.control.path)
        os.truncate(record, 0)  # the same file: the shim holds it open
        self.fresh()
        disk = powerloss.Disk(self.root)
        code = self.act(shim.RECORD, 0)
        played = powerloss.calls(record)
        printed = self.output.read_text()
        seen = {"mode": shim.RECORD, "error": code, "code": code, "failed": 0}
        problems = [] if code == 0 else [Path(f"{self.output}.err").read_text()]
        whole = powerloss.difference(disk, played, self.root)
        yield {**seen, "at": len(played), "problems": [*problems, *whole]}
        for model, cut, spoken in powerloss.images(disk, played, self.root, count, seed):
            found = self._whole(done=spoken > 0 or cut == len(played))
            found += _child(self.root, lambda: self.after_kill(printed[:spoken]))  # noqa: B023
            yield {**seen, "at": cut, "model": model, "problems": found}

    # What must hold afterwards. Each in a child, so that nothing is remembered.

    def after_kill(self, printed: str) -> list[str]:
        self.spoil()
        before = self.before
        problems = self._catalogue()
        problems += _works("fsck", "--json")
        problems += _works("status")
        now = _look(self.root)
        took = now["operations"] > before["operations"]
        acknowledged = set(re.findall(r"\b[0-9a-f]{64}\b", printed)) if self._commits else set()
        problems += [
            f"{digest} was acknowledged and is gone"
            for digest in acknowledged | self._kept(before)
            if digest not in now["versions"]
        ]
        if printed and self._operates and not took:
            problems.append("it said that it was done, and nothing has changed")
        fresh = [label for id_, label in now["versions"].items() if id_ not in before["versions"]]
        if self.command[0] == "query" and len(fresh) not in (0, self.made):
            problems.append(f"of {self.made} versions these were made: {fresh}")
        problems += self._goes_on(took)
        return problems

    @property
    def made(self) -> int:
        """How many versions the command makes."""
        return len(self.after["versions"]) - len(self.before["versions"])

    def _catalogue(self) -> list[str]:
        """One of an older schema that was not brought up to now is what it was, to the row."""
        found = self.root / ".dlv" / "dlv.db"
        number = released.schema(found)
        if number == SCHEMA_VERSION:
            return []
        was = self.template / ".dlv" / "dlv.db"
        same = number == released.schema(was) and released.rows(found) == released.rows(was)
        return [] if same else [f"the database has schema {number} and other rows than before"]

    @property
    def _operates(self) -> bool:
        return self.command[0] in OPERATIONS and "--dry-run" not in self.command

    @property
    def _commits(self) -> bool:
        return self.command[0] == "commit"

    @property
    def _archives(self) -> bool:
        return self.command[0] in ("archive", "gc")

    def _kept(self, before: dict[str, Any]) -> set[str]:
        """The versions that must be there whenever it ends: gc may take hidden ones."""
        if self.command[0] != "gc":
            return set(before["versions"])
        rows = before["versions"].items()
        return {digest for digest, row in rows if row[2] in ("live", "recovered")}

    def _goes_on(self, took: bool) -> list[str]:
        """The same command again, or if it had its effect another one; then all is clean."""
        again = ["commit", "--allow-empty", "-q", "-m", "afterwards"] if took else self.command
        if self._evaluates:  # also one that is done may be asked again
            return self._trained() + _works("fsck", "--json") + self._rebuilt()
        problems = [problem for command in self.between for problem in _works(*command)]
        problems += _works(*again)
        if self._archives:  # also one that was done finishes what was left undone
            problems += _works(*self.command)
        if again is not self.command or self._commits or self._archives:
            problems += self._leftovers()
        problems += self._restored() + _works("fsck", "--json")
        return problems + self._rebuilt() + self._parts(again)

    def _parts(self, again: Sequence[str]) -> list[str]:
        """What a killed writer left in the user's folder is gone, at the latest with a gc."""
        parts = [path for path in self.root.rglob("*") if user_files.is_part(path.name)]
        if parts and again is not self.command:
            problems = _works("gc", "-y")
            return problems + [f"left behind: {path.name}" for path in parts if path.exists()]
        return [f"left behind: {path.name}" for path in parts]

    def _restored(self) -> list[str]:
        """All that was in the quarantine is there again, and is as it was before gc took it."""
        if "--restore" not in self.command:
            return []
        now, left = _look(self.root)["versions"], [*self.root.glob(".dlv/quarantine/*")]
        left += self.root.glob(".dlv/restore.json")
        lost = [row for key, row in self.after["versions"].items() if now.get(key) != row]
        return [f"not restored: {row}" for row in lost] + [f"left: {path.name}" for path in left]

    @property
    def _evaluates(self) -> bool:
        return any(word.startswith("evaluate ") for word in self.command)

    def _trained(self) -> list[str]:
        """The same query comes to what it would have come to, once."""
        problems = _works(*self.command)
        now = _look(self.root)
        if now["made"] != self.after["made"]:
            problems.append(f"tags: {now['made']}, without a fault {self.after['made']}")
        if now["trials"] != self.after["trials"]:
            problems.append(f"trials are {now['trials']}, without a fault {self.after['trials']}")
        return problems + self._leftovers()

    def _leftovers(self) -> list[str]:
        places = [*self.root.glob(".dlv/tmp/*"), *self.root.glob(".dlv/files.git/objects/*obj*")]
        if self._archives:
            places += self.root.glob(".dlv/archive.json")
            if "0" in self.command:  # without any grace nothing stays in quarantine
                places += self.root.glob(".dlv/quarantine/*")
            with contextlib.closing(Database(Repository.find(self.root).database_file)) as db:
                known = {name for name, _ in matrices.packs(db)}
            packs = self.root.glob(".dlv/packs/*/*.pack")
            places += [path for path in packs if path.stem not in known]
        return [f"left behind: {path.relative_to(self.root)}" for path in places]

    def _rebuilt(self) -> list[str]:
        """A lost catalogue comes back with the same versions."""
        before = _look(self.root)
        for path in self.root.glob(".dlv/dlv.db*"):
            path.unlink()
        problems = _works("fsck", "--rebuild", "--json")
        now = _look(self.root)
        for digest, row in before["versions"].items():
            if now["versions"].get(digest) != row:
                problems.append(f"after a rebuild {row} is {now['versions'].get(digest)}")
        for digest in now["versions"].keys() - before["versions"].keys():
            # Written whole but never acknowledged; its number went to another since.
            if now["versions"][digest][2] != "recovered":
                problems.append(f"a rebuild brings {now['versions'][digest]}")
        if now["tags"] != before["tags"]:
            problems.append(f"after a rebuild the tags are {now['tags']}")
        return problems

    def after_error(self, code: int, said: str, allowed: Sequence[int]) -> list[str]:
        """Short writes are no error; the others end with exit 8 and change nothing, unless what
        failed did not matter. Ctrl-C leaves all as it was, or all done."""
        self.spoil()
        problems = self._catalogue()
        before, now = self.before, _look(self.root)
        took = now["operations"] > before["operations"]
        uncertain = "whether it was done" in said  # the commit itself could not be synced
        # What was done stays done.
        uncertain |= self.piecemeal or self._evaluates or self.command[0] == "gc"
        uncertain |= code == INTERRUPTED
        if code not in allowed:
            problems.append(f"exit {code}: {said}")
        if "Traceback" in said or "internal" in said:
            problems.append(said)
        if code and not said.startswith("error: "):
            problems.append(f"no message: {said!r}")
        if self._operates and took != (code == 0) and not (took and uncertain):
            problems.append(f"exit {code}, but {'a' if took else 'no'} change: {said}")
        if code and now != before and not uncertain:
            problems.append(f"exit {code}, but now {now} instead of {before}")
        problems += _works("fsck", "--json")
        return problems + self._goes_on(took)


def _child(folder: Path, function: Callable[[], list[str]]) -> list[str]:
    """What the function returns, from a forked process that stands in the folder."""
    reader, writer = os.pipe()
    child = os.fork()
    if not child:
        try:
            os.chdir(folder)
            found = function()
        except BaseException as error:
            found = [f"{type(error).__name__}: {error}"]
        with os.fdopen(writer, "w") as file:
            json.dump(found, file)
        os._exit(0)
    os.close(writer)
    with os.fdopen(reader) as file:
        text = file.read()
    os.waitpid(child, 0)
    found = json.loads(text)
    assert isinstance(found, list)
    return found


def _works(*command: str) -> list[str]:
    """Nothing if the command ends well."""
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        code = cli.run(command)
    if code == 0:
        return []
    return [f"dlv {' '.join(command)}: exit {code}: {out.getvalue()[-2000:]}{err.getvalue()}"]


def _look(root: Path) -> dict[str, Any]:
    with api.open(root) as repo:
        db = repo.repository.database
        return {
            "versions": {
                row.id: [row.name, row.number, row.state]
                for row in versions.all_versions(db, STATES)
            },
            "tags": [[name, row.id] for name, row in versions.tags(db)],
            "operations": len(facts.operations(db)),
            "made": evaluated.versions_with_content(db),
            "trials": evaluated.trials(root / ".dlv" / "trials.db"),
        }


def _files(root: Path) -> dict[str, str]:
    """The user's own files, and a hash of each."""
    found = (path for path in root.rglob("*") if path.is_file())
    named = {path.relative_to(root): path for path in found}
    return {
        str(name): hash_bytes(path.read_bytes())
        for name, path in named.items()
        if name.parts[0] not in (".dlv", ".git") and not user_files.is_part(name.name)
    }


def _warm(driver: Driver) -> tuple[int, str]:
    """Import here what the command and the checks import, so that no fork has to."""

    def look() -> list[str]:
        return [json.dumps(_look(driver.root))]

    driver.fresh()  # a look brings an older catalogue up to now
    driver.before = json.loads(_child(driver.root, look)[0])
    driver.fresh()
    code = driver.act(shim.COUNT, 0)
    if code != 0:
        sys.exit(f"exit {code}: {Path(f'{driver.output}.err').read_text()}")
    driver.after = json.loads(_child(driver.root, look)[0])
    driver.files = _files(driver.root)

    def modules() -> list[str]:
        problems = [*_works(*driver.command), *driver.after_kill("")]
        assert not problems, problems
        return sorted(sys.modules)

    count, calls = driver.control.count, driver.control.calls
    driver.fresh()
    found = _child(driver.root, modules)
    if len(found) == 1:
        sys.exit(found[0])
    for name in found:
        with contextlib.suppress(Exception):
            importlib.import_module(name)
    return count, calls


def _points(job: dict[str, Any], count: int) -> list[tuple[int, int, int]]:
    """At most so many, evenly spread over all calls and ways, and of these one share."""
    every = [(mode, at, error) for at in range(1, count + 1) for mode, error in job["ways"]]
    most = min(job["most"] or len(every), len(every))
    chosen = [every[i * len(every) // most] for i in range(most)]
    if job["order"] == "backwards":
        chosen.reverse()
    elif job["order"] == "shuffled":
        random.Random(0).shuffle(chosen)
    return chosen[job["part"] :: job["of"]]


def main() -> None:
    job = json.load(sys.stdin)
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)
    driver = Driver(job | {"bug": None})
    count, calls = _warm(driver)
    driver.bug = job["bug"]
    print(json.dumps({"count": count, "calls": calls}), flush=True)
    points = (driver.point(*point) for point in _points(job, count))
    for result in driver.power(job["images"], job["part"]) if job["images"] else points:
        print(json.dumps(result), flush=True)
        if job["bug"] and result["problems"]:
            break


if __name__ == "__main__":
    main()
