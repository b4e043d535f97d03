"""One call of one command: what the global options said, and what they lead to."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from dlv.errors import DlvError, NotFound, UnsafeInput, UsageError
from dlv.terminal.output import Output

if TYPE_CHECKING:
    import dlv.config as config_module
    import dlv.repository.handle as repositories
    from dlv.adapters.checkpoint import Checkpoint
    from dlv.hub.remotes import Remote
    from dlv.kinds import Promised
    from dlv.versions.delivery import CheckedOut


class Progress(Protocol):
    def expect(self, total: int) -> None: ...
    def advance(self, count: int) -> None: ...
    def tell(self, description: str, done: int, total: int, text: str) -> None: ...


class _Silent:
    def tell(self, *_: Any) -> None: ...

    expect = advance = tell


def _format(options: Mapping[str, Any], *, strict: bool) -> str:
    """--format, or --json and -q, which are short for two of its values."""
    named = {"json": "--json", "ids": "-q"}
    given = [form for form, word in zip(named, ("json", "quiet"), strict=True) if options.get(word)]
    said = options.get("format")
    if strict and len({*given, *([said] if said else [])}) > 1:
        words = [named[form] for form in given] + ([f"--format {said}"] if said else [])
        raise UsageError(f"{' and '.join(words)} cannot be combined")
    return str(given[0] if given else said or "table")


class Invocation:
    """Handed to every command as its first argument."""

    def __init__(
        self, options: Mapping[str, Any], environ: Mapping[str, str], *, strict: bool = True
    ) -> None:
        import dlv.canonical as canonical

        self.environ = environ
        self.directory = Path(options.get("directory") or ".")
        self.format = _format(options, strict=strict)
        self.json, self.quiet = self.format == "json", self.format == "ids"
        self.verbose = bool(options.get("verbose"))
        self.debug = bool(options.get("debug"))
        self.pager = not options.get("no_pager")
        self.colour: str | None = options.get("color")
        self._jobs: int | None = options.get("jobs")
        self._wait: float | str | None = options.get("wait")
        self.mending = self.rebuilding = self._config_read = False
        self._silent: config_module.Config | None = None
        # A fixed time for tests and for reproducible examples.
        fixed = environ.get("DLV_NOW") if strict else None
        self.output = Output(
            sys.stdout,
            sys.stderr,
            environ,
            json=self.json,
            quiet=self.quiet,
            form=self.format,
            header=bool(options.get("header")),
            verbose=self.verbose,
            color=self.colour,
            pager=self.pager,
            configured=self._configured,
            now=canonical.stop_clock(fixed) if fixed else None,
        )
        if strict and not self.directory.is_dir():
            raise UsageError(f"no such directory: {self.directory}")

    @cached_property
    def repository(self) -> repositories.Repository:
        """The repository that the directory lies in; exit 3 where there is none."""
        import dlv.disk.locks as locks
        import dlv.repository.handle as repositories

        found = repositories.Repository.find(
            self.directory, self.environ.get("DLV_DIR"), mending=self.mending
        )
        found.single_host = lambda: bool(self.config.get("core.singlehost"))
        found.patience = locks.Patience(self._seconds, self.output.message)
        found.find_promised = self._find_promised
        if found.outdated and not self.rebuilding:
            import dlv.recovery.rebuild as rebuild

            faults = rebuild.rebuild(found, if_outdated=True).faults
            self.output.message("Rebuilt the database, which an older dlv had written")
            if faults:
                self.output.warn("parts of the repository are corrupt; to list them: dlv fsck")
        return found

    def _find_promised(self, repository: repositories.Repository) -> Promised | None:
        import dlv.hub.promised as promised

        return promised.find_promised(repository, self.environ)

    def look(
        self, references: Sequence[str]
    ) -> tuple[repositories.Repository, list[str], Remote | None]:
        """Follow references to versions here, or to versions of a remote (origin:lenet@3).

        Return the repository in which they are, what they are called there, and the remote.
        """
        if not self.names_remote(references):
            return self.repository, list(references), None
        import dlv.hub.mirror as mirror

        looked = mirror.look(self.repository, self.config, self.environ, references)
        looked[0].single_host = self.repository.single_host
        looked[0].patience = self.repository.patience
        return looked

    def look_with_data(
        self, words: Sequence[str]
    ) -> tuple[repositories.Repository, list[str], Remote | None]:
        """The same, where the last word can be a file that is here."""
        remote = [text for text in words if self.names_remote([text])]
        if not remote or len(remote) == len(words):
            return self.look(words)
        data = words[-1]
        here = data.startswith("python:") or (self.directory / data).exists()
        if remote == list(words[:-1]) and not here and Path(data).suffix and "@" not in data:
            raise NotFound(f"no such file: {data}")
        if remote != list(words[:-1]) or not here:
            raise UsageError(
                "versions here and on a remote cannot be evaluated together",
                why=", ".join(words),
                hint=f"dlv pull --metadata-only {remote[0]}",
            )
        repository, references, opened = self.look(remote)
        return repository, [*references, data], opened

    def use_mirror(self, name: str) -> None:
        """Work on the versions of a remote from here on; what is changed there is lost."""
        import dlv.hub.names as names

        names.address(self.config, name)
        self.repository = self.look([f"{name}:*"])[0]

    def look_at(self, reference: str) -> tuple[repositories.Repository, str]:
        """The same for one reference."""
        repository, (plain,), _ = self.look([reference])
        return repository, plain

    def names_remote(self, references: Sequence[str]) -> bool:
        """Return whether a reference is to a remote."""
        if not any(":" in text for text in references):  # the configuration need not be read
            return False
        import dlv.hub.names as names

        return any(names.remote_in(self.config, text) for text in references)

    def _seconds(self) -> float:
        """For how long to wait for others."""
        import dlv.config as config_module
        import dlv.disk.locks as locks

        said = self._configured(config_module.WAIT) if self._wait is None else self._wait
        return locks.SECONDS if said is None else float(said)

    @cached_property
    def config(self) -> config_module.Config:
        """The configuration as it counts here, inside or outside a repository."""
        loaded = self._read_config()
        for warning in loaded.warnings:
            self.output.warn(warning)
        return loaded

    def _read_config(self) -> config_module.Config:
        import dlv.config as config_module

        self._config_read = True
        self._silent = config_module.Config.load(self.repository_file, self.environ)
        return self._silent

    @cached_property
    def repository_file(self) -> Path | None:
        """`.dlv/config.toml` of the repository here, found without opening it."""
        import dlv.config as config_module

        return config_module.repository_file(self.directory, self.environ.get("DLV_DIR"))

    @property
    def jobs(self) -> int:
        return self._jobs or int(self.config.get("core.jobs")) or os.cpu_count() or 1

    @property
    def author(self) -> str:
        return self.config.author(self.environ)

    @property
    def signers(self) -> Path | None:
        """The file of the keys whose signatures count, if one is configured."""
        named = str(self.config.get("core.allowedsigners"))
        return Path(named).expanduser() if named else None

    @property
    def signing_key(self) -> Path | None:
        """The key to sign with, if one is configured."""
        named = str(self.config.get("user.signingkey"))
        return Path(named).expanduser() if named else None

    def _configured(self, key: str) -> str | None:
        """A value for printing, which must not fail on, warn of or wait for the files."""
        if not self._config_read:
            with suppress(DlvError, OSError):
                self._read_config()
        if self._silent is None or self._silent.origin(key).level == "default":
            return None
        return str(self._silent.get(key))

    def next_step(self, text: str) -> None:
        """Suggest a command after a success: one dim line, on a terminal only (core.hints)."""
        if self.output.terminal and not self.quiet and self.config.get("core.hints"):
            self.output.next_step(text)

    def confirm(self, question: str, *, yes: bool) -> None:
        """Ask before something permanent; without a terminal, `-y` is required."""
        if yes:
            return
        if not (sys.stdin.isatty() and sys.stderr.isatty()) or self.json:
            raise UnsafeInput(
                "confirmation required: stdin is not a terminal", hint="add -y to proceed"
            )
        sys.stderr.write(f"{question} [y/N] ")
        sys.stderr.flush()
        if sys.stdin.readline().strip().lower() not in ("y", "yes"):
            raise UnsafeInput("not confirmed; nothing changed")

    @contextmanager
    def progress(
        self, description: str, total: int | None = None, **how: bool
    ) -> Iterator[Progress]:
        """A bar over bytes (or `rows`) on stderr; nothing unless a person is looking."""
        if not self.output.interactive:
            yield _Silent()
            return
        import dlv.terminal.screen as screen

        with screen.progress(
            description, total, colour=self.output.colour(sys.stderr), **how
        ) as bar:
            yield bar


def say_files(call: Invocation, found: CheckedOut) -> None:
    """Say which files were not written, were removed, or were kept because they had changed."""
    if found.unchanged:
        call.output.message(f"{_files(len(found.unchanged))} already up to date")
    if found.removed:
        call.output.message(
            f"removed {_files(len(found.removed))} that {found.version.label} does not have"
        )
    if found.kept:
        more = f" and {len(found.kept) - 5} more" if len(found.kept) > 5 else ""
        call.output.warn(
            f"kept files that {found.version.label} does not have: "
            f"{', '.join(found.kept[:5])}{more}"
        )


def _files(count: int) -> str:
    return "1 file" if count == 1 else f"{count} files"


def open_weights(format_: str, path: Path) -> Checkpoint:
    """Open a file of the working folder to compare its weights: few commands come to it."""
    import dlv.versions.add as adding

    return adding.open_weights(path, format_)


def is_data_set(path: str) -> bool:
    """Return whether an npz file holds examples rather than weights."""
    import dlv.adapters.detect as detect

    return detect.is_data_set(path)


_TEMPLATE = """

# Describe this version. Lines that start with # are ignored, and an empty message aborts the
# commit.
"""


def commit_message(call: Invocation) -> str:
    """Return the message written in $EDITOR, or an empty string without a terminal."""
    if call.json or call.quiet or not (sys.stdin.isatty() and sys.stdout.isatty()):
        return ""
    import click

    text = click.edit(_TEMPLATE, extension=".txt") or ""
    return "\n".join(line for line in text.splitlines() if not line.startswith("#")).strip()
