"""Model cards: facts from the manifest of a version, below the text that its author wrote.

The author's text is the file CARD.md, or a README.md with front matter as the Hugging Face Hub has
it, among the files of the version.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import field
from typing import Any

from dlv.dataclass import dataclass
from dlv.dtypes import tensor_bytes
from dlv.errors import DlvError
from dlv.metadata import metrics
from dlv.metadata.metrics import Summary
from dlv.metadata.versions import Version
from dlv.network.graph import Network
from dlv.objects.manifest import FileEntry, Manifest, TensorEntry
from dlv.objects.parameters import count_parameters
from dlv.repository.handle import Repository
from dlv.weights.store import MatrixStore, stored_network

NAMES = ("CARD.md", "README.md")
MOST_BYTES = 1 << 20  # of the file
_FRONT = re.compile(r"---[ \t]*\r?\n(.*?\r?\n)?---[ \t]*(?:\r?\n|\Z)", re.DOTALL)
_TASKS = ("pipeline_tag", "task")


@dataclass(frozen=True)
class OwnText:
    """What the author wrote: front matter, and the text after it."""

    front: dict[str, Any] = field(default_factory=dict)
    text: str = ""

    @property
    def task(self) -> str | None:
        return next((str(self.front[key]) for key in _TASKS if self.front.get(key)), None)

    @property
    def license(self) -> str | None:
        name = self.front.get("license")
        return str(name) if name else None

    @property
    def tags(self) -> list[str]:
        return self.listed("tags")

    def listed(self, key: str) -> list[str]:
        """Return a field of the front matter as a list; a single value counts as one entry."""
        value = self.front.get(key) or []
        return list(map(str, value if isinstance(value, list) else [value]))


@dataclass(frozen=True)
class Card:
    """A version as it is presented to people who search for one."""

    version: Version
    manifest: Manifest
    network: Network | None
    metrics: list[Summary]
    own: OwnText

    @property
    def tags(self) -> list[str]:
        """Tags of the front matter, and those of the version here."""
        return list(dict.fromkeys([*self.own.tags, *self.version.tags]))

    @property
    def _model(self) -> list[TensorEntry]:
        """Weights and buffers, tied ones once."""
        tensors = self.manifest.tensors
        return [t for t in tensors if t.role in ("weight", "buffer") and t.tied is None]

    @property
    def parameters(self) -> int:
        """Number of parameters of the weights."""
        return count_parameters(self.manifest.tensors)

    @property
    def bytes(self) -> int:
        """Bytes of weights and buffers as they were added."""
        return sum(tensor_bytes(tensor.dtype, tensor.shape) for tensor in self._model)

    @property
    def operations(self) -> dict[str, int]:
        """How many layers of each operation the network has, most frequent first."""
        counts = Counter(node.op for node in self.network.nodes) if self.network else Counter()
        return dict(counts.most_common())


def card_of(repository: Repository, version: Version) -> Card:
    """Return the card of a version; a card file that cannot be read counts as plain text."""
    manifest = repository.manifest(version.id)
    network = None
    if manifest.network is not None:
        network = stored_network(MatrixStore.of(repository), manifest.network.id)
    summaries = metrics.of_version(repository.database, version.key)
    return Card(version, manifest, network, summaries, own_text(repository, manifest))


def own_text(repository: Repository, manifest: Manifest) -> OwnText:
    """Return the card that the author wrote for a version, empty if there is none."""

    def read(entry: FileEntry) -> bytes:
        from dlv.repository.git_files import FileStore

        return bytes(FileStore(repository.files_git).read(entry))

    return text_among(manifest.files, read)


def text_among(files: Iterable[FileEntry], read: Callable[[FileEntry], bytes]) -> OwnText:
    """Return the card that the author wrote, which is one of these files."""
    entries = {entry.path: entry for entry in files if entry.path in NAMES}
    for name in NAMES:
        entry = entries.get(name)
        if entry is not None and entry.bytes <= MOST_BYTES:
            own = split(read(entry).decode("utf-8", "replace"), name)
            if own.front or name == NAMES[0]:
                return own
    return OwnText()


def split(text: str, label: str) -> OwnText:
    """Divide a text into its front matter and the rest; front matter must be YAML."""
    text = text.removeprefix("\ufeff")
    match = _FRONT.match(text)
    if match is None:
        return OwnText({}, text.strip())
    import dlv.adapters.settings as settings

    try:
        front = settings.parse(match[1] or "", "yaml", label)
    except DlvError:
        return OwnText({}, text.strip())
    return OwnText(front, text[match.end() :].strip())


def markdown(card: Card, label: str, base: str | None) -> str:
    """Return the card as a README.md of the Hugging Face Hub: front matter, text, facts.

    `base` is the label of the parent.
    """
    import dlv.adapters.settings as settings

    front = dict(card.own.front)
    if card.tags:
        front["tags"] = card.tags
    front.setdefault("library_name", "dlv")
    shown = {summary.name: summary.last for summary in card.metrics if summary.last is not None}
    if shown and "model-index" not in front:
        dataset = next(iter(card.own.listed("datasets")), "unknown")
        result = {
            "task": {"type": card.own.task or "other"},
            "dataset": {"type": dataset, "name": dataset},
            "metrics": [{"type": name, "value": value} for name, value in shown.items()],
        }
        front["model-index"] = [{"name": card.version.name, "results": [result]}]
    lines = ["---", settings.dump_yaml(front).rstrip(), "---", ""]
    lines += [card.own.text or f"# {card.version.name}", "", *_facts(card, label, base)]
    return "\n".join(lines) + "\n"


def _facts(card: Card, label: str, base: str | None) -> Iterator[str]:
    version = card.version
    yield "## Version"
    yield ""
    rows = {
        "version": label,
        "id": version.id,
        "message": version.message.split("\n")[0],
        "author": version.author,
        "created": version.created,
        "parent": base,
        "parameters": f"{card.parameters:,}",
        "size": f"{card.bytes:,} bytes",
        "layers": ", ".join(f"{count} {op}" for op, count in card.operations.items()),
    }
    yield from (f"- {key}: {_escaped(str(value))}" for key, value in rows.items() if value)
    if card.metrics:
        yield from ("", "| metric | last | min | max |", "| --- | --- | --- | --- |")
        for summary in card.metrics:
            cells = (summary.name, summary.last, summary.min, summary.max)
            yield f"| {' | '.join(_escaped(str(cell)) for cell in cells)} |"
    if card.manifest.hyperparameters:
        yield from ("", "| hyperparameter | value |", "| --- | --- |")
        for key, value in card.manifest.hyperparameters.items():
            yield f"| {_escaped(key)} | {_escaped(str(value))} |"


def _escaped(text: str) -> str:
    return re.sub(r"([\\|<>*_`\[\]])", r"\\\1", text).replace("\n", " ")
