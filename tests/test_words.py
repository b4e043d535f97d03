"""What people read is plain English: no banned words, one word per thing, hints that exist.

Every string of the program is looked at, but for docstrings (those of commands are help texts),
SQL, and patterns of regular expressions.
"""

from __future__ import annotations

import ast
import re
import shlex
from functools import cache
from pathlib import Path
from typing import NamedTuple

import click
import pytest

import dlv.cli as cli
import dlv.commands.shared.topics as topics
from dlv.commands.shared.options import Group

ROOT = Path(__file__).parents[1]
SQL = re.compile(r"\b(SELECT|INSERT|UPDATE|DELETE|CREATE|PRAGMA|WHERE|FROM|JOIN)\b")

# pattern -> what to write instead
BANNED = {
    r"\b(?:is|are|was|were|be) no (?!longer\b)": "is not a",
    r"\bthere (?:is|are) no\b": "no such X, or no X",
    r"\banew\b": "again",
    r"\bsurely\b": "guaranteed",
    r"\b(?:whoever|nobody|somebody)\b": "name the user, the file or dlv",
    r"\bmeanwhile\b": "by another process, during the operation",
    r"\bpass(?:ed)? over\b": "skip",
    r"\bright already\b": "already up to date",
    r"\bexclude each other\b": "cannot be combined",
    r"\bis about\b": "requires",
    r"\b(?:stands?|lies?)\b": "is",
    r"\bends? too early\b": "is truncated",
    r"\bnot known\b": "unknown",
    r"\bany more\b": "no longer",
    r"\bwanted\b": "expected, required",
    r"\btexts\b|\ba text\b": "string",
    r"\bbeside\b": "next to",
    r"\bbehind\b": "after",
    r"\bblanks\b": "spaces",
    r"\bmend(?:s|ed)?\b": "repair",
    r"\bdamaged\b": "corrupt",
    r"\bcatalogue\b": "database",
    r"\bmatrices\b|(?<!confusion )\bmatrix\b": "tensor",
    r"(?<!`)\bsnapshots?\b": "checkpoint",
    r"\blossy\b": "quantized",
    r"\bnormalis|\bcolour\b|\boptimis": "US spelling",
    r"\b(?:who|whom|whose|which|what) (?:gave|asks|looks)\b": "name the agent",
}


class Said(NamedTuple):
    where: str
    text: str


@cache
def said() -> list[Said]:
    """Every string with a space in it, the placeholders of f-strings as {}."""
    strings = []
    for path in sorted((ROOT / "dlv").rglob("*.py")):
        tree = ast.parse(path.read_text())
        inner: set[ast.AST] = set()
        for node in ast.walk(tree):
            holds_docstring = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
            if isinstance(node, holds_docstring) and ast.get_docstring(node) is not None:
                inner.add(node.body[0].value)  # type: ignore[attr-defined]
            if isinstance(node, ast.JoinedStr):
                inner.update(node.values)
            if _is_pattern(node):
                inner.update(ast.walk(node))
        for node in ast.walk(tree):
            text = None if node in inner else _text(node)
            if text and " " in text.strip() and not SQL.search(text):
                strings.append(Said(f"{path.relative_to(ROOT)}:{node.lineno}", text))  # type: ignore[attr-defined]
    return strings


def _text(node: ast.AST) -> str | None:
    if isinstance(node, ast.Constant):
        return node.value if isinstance(node.value, str) else None
    if isinstance(node, ast.JoinedStr):
        return "".join(
            str(part.value) if isinstance(part, ast.Constant) else "{}" for part in node.values
        )
    return None


def _is_pattern(node: ast.AST) -> bool:
    called = isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute)
    return called and ast.unparse(node.func) == "re.compile"  # type: ignore[attr-defined]


@cache
def helps() -> list[Said]:
    """The help of every command as users see it, and the topics of `dlv help`."""
    context = click.Context(cli.program, info_name="dlv")
    texts = [Said("dlv --help", cli.program.get_help(context))]
    for name, command, _ in cli.all_commands():
        inner = click.Context(command, info_name=name, parent=context)
        texts.append(Said(f"dlv {name} --help", command.get_help(inner)))
    return texts + [Said(f"dlv help {topic}", text) for topic, text in topics.TOPICS.items()]


@pytest.mark.parametrize("pattern", BANNED)
def test_banned_words(pattern: str) -> None:
    found = [
        f"{each.where}: {each.text[:120]!r}: write {BANNED[pattern]}"
        for each in (*said(), *helps())
        if re.search(pattern, each.text)
    ]
    assert not found, "\n".join(found)


def test_commands_in_hints_exist() -> None:
    """`dlv WORD --option` in any string names a command and an option that there are."""
    context = click.Context(cli.program, info_name="dlv")
    below = {name: command for name, command, _ in cli.all_commands()}
    wrong = []
    for each in said():
        for line in re.findall(r"(?:^|[ `:(])dlv ([a-z][a-z-]+(?: [^`;:()\n]*)?)", each.text):
            name, *words = _words(line)
            command = cli.program.get_command(context, name)
            if command is None:
                if len(name) > 2 and not _is_prose(name):
                    wrong.append(f"{each.where}: dlv {line}")
                continue
            while isinstance(command, Group) and words and f"{name} {words[0]}" in below:
                name = f"{name} {words.pop(0)}"
                command = below[name]
            if isinstance(command, Group) and words and re.match(r"[a-z]", words[0]):
                wrong.append(f"{each.where}: dlv {line}")
            known = {opt for p in command.params for opt in (*p.opts, *p.secondary_opts)}
            known |= {"--help"}
            ends = next((at for at, word in enumerate(words) if word in ("&&", "||")), len(words))
            words = words[:ends]
            options = [word.partition("=")[0] for word in words if re.match(r"--[a-z]", word)]
            wrong += [f"{each.where}: dlv {line}: {o}" for o in options if o not in known]
    assert not wrong, "\n".join(wrong)


def _words(line: str) -> list[str]:
    try:
        return shlex.split(line)
    except ValueError:
        return line.split()


# What follows the name of the program in sentences such as "dlv does not support".
_PROSE = {
    "knows",
    "keeps",
    "runs",
    "raise",
    "had",
    "command",
    "network",
    "cannot",
    "can",
    "does",
    "process",
    "processes",
    "version",
    "reads",
    "stores",
    "needs",
    "is",
    "was",
    "has",
    "and",
    "or",
    "that",
    "which",
    "repository",
    "itself",
    "to",
    "in",
    "of",
    "on",
    "by",
    "made",
    "makes",
    "may",
    "must",
    "says",
    "writes",
    "wrote",
    "its",
    "own",
    "files",
    "traces",
    "understands",
    "trial",
    "answer",
    "reader",
    "run",
    "object",
    "the",
    "supports",
}


def _is_prose(word: str) -> bool:
    return word in _PROSE


def test_help_fits_a_screen() -> None:
    lines = cli.program.get_help(click.Context(cli.program, info_name="dlv")).split("\n")
    assert len(lines) <= 66
    for name, (_, summary, _) in cli.COMMANDS.items():
        assert len(summary) <= 50, name
        assert not summary.endswith("."), name


ALL = {name: command for name, command, _ in cli.all_commands()}


@pytest.mark.parametrize("name", ALL)
def test_help_of_a_command(name: str) -> None:
    """A summary, one short paragraph, options that start with a verb, examples."""
    command = ALL[name]
    paragraphs = (command.help or "").split("\n\n")
    assert len(paragraphs) <= 2
    assert len(paragraphs[0]) <= 60
    assert sum(len(part.split("\n")) for part in paragraphs[1:]) <= 6
    for option in command.params:
        if isinstance(option, click.Option) and not option.hidden:
            text = option.help or ""
            assert text.endswith("."), (name, option.name)
            assert text[:1].isupper() or text.startswith("mlflow: "), (name, option.name)
            assert not re.match(r"(Only|Of|Else|Also|Not|For|Where|If)\b", text), (name, text)


# Pages about bytes on disk and about the source use the words of the formats and of the code.
INNER_PAGES = {"format.md", "development.md"}


@cache
def prose() -> list[Said]:
    """Sentences of README and docs/, without code."""
    lines = []
    for path in [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]:
        if path.name in INNER_PAGES:
            continue
        inside = False
        for number, line in enumerate(path.read_text(encoding="utf-8").split("\n"), 1):
            if line.startswith("```"):
                inside = not inside
            elif not inside:
                text = re.sub(r"`[^`]*`|\]\([^)]*\)", "``", line)
                lines.append(Said(f"{path.relative_to(ROOT)}:{number}", text))
    return lines


@pytest.mark.parametrize("pattern", BANNED)
def test_banned_words_in_docs(pattern: str) -> None:
    found = [
        f"{each.where}: {each.text[:120]!r}: write {BANNED[pattern]}"
        for each in prose()
        if re.search(pattern, each.text)
    ]
    assert not found, "\n".join(found)


# What an option means, wherever it is: its letter, whether it takes a value, its metavar.
SAME = {
    "-o": "--output",
    "-f": "--force",
    "-n": None,  # counts
    "-m": "--message",
    "-a": "--all",
    "-y": "--yes",
    "-P": None,
    "-s": "--short",
    "-l": "--list",
    "-d": "--delete",
    "-j": None,
    "-C": None,
    "-q": "--quiet",
    "-v": "--verbose",
}
# Options that mean another thing in one command, with the reason.
OWN = {("commit", "--all"): "-a as in git: all changed files", ("gc", "--restore"): ""}


def test_options_mean_the_same_in_all_commands() -> None:
    """One kind of value, one metavar and one letter for each option of a name."""
    forms: dict[str, dict[tuple[bool, str], list[str]]] = {}
    letters: dict[str, set[str]] = {}
    for name, command in ALL.items():
        for option in command.params:
            if not isinstance(option, click.Option) or (option.name or "").startswith("global_"):
                continue
            for word in option.opts:
                if word.startswith("--"):
                    if (name, word) not in OWN:
                        metavar = option.metavar or ("" if option.is_flag else option.type.name)
                        form = bool(option.is_flag), metavar
                        forms.setdefault(word, {}).setdefault(form, []).append(name)
                else:
                    letters.setdefault(word, set()).update(
                        other for other in option.opts if other.startswith("--")
                    )
    different = {word: found for word, found in forms.items() if len(found) > 1}
    assert different.keys() <= DIFFERENT.keys(), different
    for letter, words in letters.items():
        assert letter in SAME, letter
        assert words <= {SAME[letter]} if SAME[letter] else True, (letter, words)


# Options of one meaning whose values have another form, with the reason.
DIFFERENT = {
    "--to": "checkout: a folder; quantize: a quantization",
    "--set": "copy: attributes of layers; the others: settings",
    "--tensors": "pull: patterns; desc, diff: a section",
    "--tensor": "export: patterns; show, desc: one name",
    "--explain": "archive: of one tensor; query: of the whole query",
    "--delete": "copy: layers; tag: the tag",
    "--data": "hub: its folder; desc: examples",
    "--name": "commit and others: a model; hub: what a token is for",
    "--checkpoints": "rm: steps; query: last or all",
    "--file-format": "add: any format that can be read; the others: those that can be written",
}
