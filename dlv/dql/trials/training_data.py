"""The data that trials are trained on: where it lies, and a hash of its content."""

from __future__ import annotations

import os
from pathlib import Path, PurePosixPath

import dlv.disk.durable as durable
from dlv.adapters.data.columns import PREFIX
from dlv.adapters.data.sets import UNVERIFIED, fingerprint, fingerprint_of, open_parts
from dlv.canonical import dumps
from dlv.dataclass import dataclass
from dlv.dql.bind.configurations import versioned_entry
from dlv.errors import NotFound, UsageError, nearest
from dlv.network.graph import Network
from dlv.repository.git_files import FileStore
from dlv.repository.handle import Repository
from dlv.training import fitting
from dlv.training.config import TRAINER, Config
from dlv.training.fingerprints import CACHE, Fingerprints
from dlv.training.trainers.rows import inputs_of, wanted_of
from dlv.training.trial_files import EXTRACTED

FETCH = {
    "s3": "aws s3 cp {} .",
    "gs": "gcloud storage cp {} .",
    **dict.fromkeys(("http", "https"), "curl -LO {}"),
}


@dataclass(frozen=True)
class DataSet:
    """`path` is what a worker opens."""

    where: str
    path: str
    fingerprint: str

    @property
    def verified(self) -> bool:
        """Whether the fingerprint is of the content; else only the code knows what comes."""
        return not self.fingerprint.startswith(UNVERIFIED)


class DataSets:
    """What configurations of one query name, each looked for once."""

    def __init__(self, repository: Repository, directory: Path, beside: Path | None = None) -> None:
        self._repository = repository
        self._places = [directory, *([beside] if beside is not None else [])]
        self._prints = Fingerprints(repository.cache / CACHE, fingerprint)
        self._found: dict[str, DataSet] = {}
        self._opened: set[bytes] = set()

    def of(self, where: str) -> DataSet:
        """NotFound if it is not there: a path from the working directory, or from beside the
        configuration file; REF:FILE; python:module:function."""
        if where not in self._found:
            self._found[where] = self._look(where)
        return self._found[where]

    def check(self, data: DataSet, network: Network, called: str, config: Config) -> None:
        """Whether the trainer torch can learn from it, as far as that is told without reading it
        all. Trainers of the user's own may read what they like."""
        if config.trainer != TRAINER or data.where.startswith(PREFIX):
            return
        asked = [data.where, network.id, config["data"], config["loss"], config["val"]]
        if (key := dumps(asked)) in self._opened:
            return
        self._opened.add(key)
        source = open_parts(
            data.path,
            config["data"],
            wanted_of(inputs_of(network)),
            self._places[0],
            digest=lambda _: data.fingerprint,
        )
        fitting.check_fit(source, network, called, config)

    def _look(self, where: str) -> DataSet:
        if where.startswith(PREFIX):
            return DataSet(where, where, fingerprint_of(where, self._places[0]))
        if "://" in where:
            raise UsageError(
                f"{where} cannot be read",
                why="trainers read files, folders and what python:module:function gives",
                hint=_fetched(where),
            )
        for folder in self._places:
            path = folder / where
            if path.exists():
                path = path.resolve()
                return DataSet(where, str(path), self._prints(path))
        if ":" in where:
            found = self._stored(where)
            if found is not None:
                return found
        beside = (self._places[0] / where).parent
        names = [each.name for each in beside.iterdir()] if beside.is_dir() else []
        shown = where[: len(where) - len(PurePosixPath(where).name)]
        raise NotFound(
            f"there is no data {where}",
            why=f"looked in {' and '.join(dict.fromkeys(map(str, self._places)))}",
            did_you_mean=[shown + name for name in nearest(PurePosixPath(where).name, names)],
        )

    def _stored(self, where: str) -> DataSet | None:
        """An associated file of a version, taken out of the repository."""
        entry = versioned_entry(self._repository, where)
        if entry is None:
            return None
        folder = durable.make_directory(self._repository.trials_folder / EXTRACTED)
        path = folder / f"{entry.blake3}{PurePosixPath(entry.path).suffix}"
        if not path.is_file() or path.stat().st_size != entry.bytes:
            content = FileStore(self._repository.files_git).read(entry)
            durable.replace(path, content, tmp_dir=self._repository.tmp)
        else:
            os.utime(path)  # gc sees that it is wanted
        return DataSet(where, str(path), entry.blake3)


def _fetched(where: str) -> str:
    """What to type where data lies on another machine."""
    scheme, _, rest = where.partition("://")
    command = FETCH.get(scheme.lower(), "copy it to this machine").format(where)
    name = rest.rstrip("/").rpartition("/")[2] or "rows.npz"
    return f'{command}, and then config.input_data = "{name}"; or python:module:function reads it'
