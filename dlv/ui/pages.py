"""What each page of the site shows: records of the library as sections."""

from __future__ import annotations

import dataclasses
import math
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager, nullcontext
from functools import partial
from typing import Any

import dlv.adapters.detect as detect
import dlv.archiving.archive as archiving
import dlv.archiving.budgets as budgets
import dlv.archiving.proposal as proposal
import dlv.archiving.speeds as speeds
import dlv.disk.paths as paths
import dlv.dql.execute as execute
import dlv.dql.saved as saved_queries
import dlv.dql.words.completing as completing
import dlv.dql.words.parser as parser
import dlv.evaluation.evaluate as evaluating
import dlv.report.network_picture as network_picture
import dlv.report.plots as plots
import dlv.repository.revisions as revisions
import dlv.terminal.completion as completion
import dlv.ui.answer as answer
import dlv.ui.comparison as comparison
import dlv.ui.evaluation as evaluation
import dlv.ui.storage as storage_sections
import dlv.ui.sweep as sweep_sections
import dlv.ui.version as version_sections
import dlv.versions.describe as describe
import dlv.versions.diff as diffing
import dlv.versions.reachable as reachable
import dlv.versions.stats as stats
import dlv.views.archive as archive_view
import dlv.views.disk as disk_view
import dlv.views.trials as trials_view
import dlv.weights.reading.retrieval as retrieval
import dlv.weights.snapshots as snapshots
import dlv.weights.statistics as weight_statistics
from dlv.dataclass import dataclass
from dlv.dql.outcome import QueryOptions
from dlv.dql.words import ast
from dlv.errors import DlvError, NotFound, UsageError, require
from dlv.evaluation.answers import Progress
from dlv.metadata import evaluations as saved_evaluations
from dlv.metadata import versions
from dlv.metadata.trials import Trials
from dlv.objects.manifest import FileEntry
from dlv.report.markup import Html, text
from dlv.report.page import Section
from dlv.report.plots import Axis, Dot
from dlv.repository.git_files import FileStore
from dlv.repository.handle import Repository
from dlv.terminal.output import Fields
from dlv.terminal.table import Bytes, Cell, Column, Id, Items, Table, Time, escape, human_bytes
from dlv.training.ledger.ledger import Ledger
from dlv.ui.frame import Frame
from dlv.ui.jobs import Job
from dlv.ui.models import Models
from dlv.versions.describe import Description
from dlv.weights.store import MatrixStore

MOST_FILE = 1 << 20  # bytes of a file that is shown
MOST_SAVED = 32 << 20  # bytes of a file that can be saved
MANY = 1000  # versions
MOST_COMPARED = 8
MOST_ROWS = 1000  # of a query's answer
MOST_QUERY = 4000  # characters of a query of a visitor
MOST_CHECKPOINTS, MOST_NORMS = 40, 64 << 20  # that norms are shown of, and bytes read for them
LATER = 64 << 20  # bytes of weights that a page does not wait for
MOST_EVALUATIONS = 200
MOST_FILES = 50
MOST_DATA = 300  # versions in which data sets are looked for
_CLONE = "run it in a clone: dlv clone URL"
EXAMPLES = (
    "select m",
    'select m.name, m["loss"].min as best order by best limit 10',
    'select a, b where b child_of a and b["loss"] < a["loss"]',
    'select m where m["conv*"].next has RELU',
)


@dataclass(frozen=True)
class Visit:
    """For whom pages are: the owner of the repository, or visitors of a hub, who have limits.

    `seconds` that a query may run, `weights`: bytes that may be read for a page, `versions` up to
    which networks may be derived.
    """

    limited: bool = False
    seconds: float = math.inf
    weights: float = math.inf
    versions: float = math.inf
    title: str = "Models"  # of the page of all versions
    empty: str = "No versions yet. Commit one: dlv add . && dlv commit -m 'first'"

    @contextmanager
    def limiting(self, repository: Repository) -> Iterator[None]:
        """End statements that take too long."""
        if not self.limited:
            yield
            return
        with repository.database.within(self.seconds):
            yield


OWNER = Visit()


def check_bytes(count: int, visit: Visit, command: str) -> None:
    """Raise UsageError if more weights would be read than a page may."""
    if count > visit.weights:
        raise UsageError(
            f"{human_bytes(count)} of weights would be read, more than a page may",
            hint=f"in a clone: {command}",
        )


def without_rows(found: Models) -> Models:
    """Return the table without rows, to show below an invalid filter."""
    listing = dataclasses.replace(found.listing, entries=[])
    return dataclasses.replace(found, listing=listing, lanes=[])


# One version


def version(
    repository: Repository, ref: str, frame: Frame, visit: Visit
) -> tuple[Description, list[Section]]:
    described = describe.describe(repository, ref)
    label = described.version.label
    sections = version_sections.sections(repository, described, frame)
    found = []
    for section in sections:
        if section.title == "curves":
            section = _live_curves(section, frame.addresses.curves([label]))
        elif section.title == "tensors":
            more = _part(frame.addresses.statistics(described.label), "Show statistics")
            section = Section(section.title, Html(section.body + more))
        elif section.title == "storage" and visit.limited:
            continue  # how a mirror has the version says nothing
        elif section.title == "storage":
            share = stats.stats(repository, [described.version.id]).rows[0].share
            section = Section(section.title, Html(section.body + _share(share, frame)))
        elif section.title == "files":
            section = Section(section.title, _files(described, frame))
        found.append(section)
    return described, found


def _share(share: reachable.Share | None, frame: Frame) -> Html:
    """What gc would free without this version, and all that is read to restore it."""
    if share is None:
        return Html("")
    cells: dict[str, Cell] = {"freed": Bytes(share.freed), "needed": Bytes(share.needed)}
    return frame.html(Fields(cells))


def _live_curves(section: Section, source: str) -> Section:
    """Charts that the script of the page replaces by ones that can be zoomed."""
    body = section.body.replace(
        '<div class="charts">', f'<div class="charts" data-curves="{text(source)}">', 1
    )
    return Section(section.title, Html(body))


def _part(source: str, label: str) -> Html:
    """A button that fetches this part of the page."""
    return Html(
        f'<div data-part="{text(source)}"><button type="button">{text(label)}</button></div>'
    )


def _files(described: Description, frame: Frame) -> Html:
    rows: list[list[Cell]] = [
        [entry.path, entry.role, Bytes(entry.bytes)] for entry in described.manifest.files
    ]
    label = described.version.label

    def leads(title: str, cell: object) -> str | None:
        return frame.addresses.file(label, str(cell)) if title == "path" else None

    table = Table([Column("path"), "role", "size"], rows)
    return frame.leading(leads).table(table, caption="files")


def version_links(described: Description, frame: Frame, visit: Visit) -> Html:
    """Links from a version to its comparison, network, model and evaluations."""
    label, to = described.version.label, frame.addresses
    found = []
    for parent in described.parents[:1]:
        if parent.label is not None:
            found.append((to.compare([parent.label, label]), f"Compare with {parent.label}"))
    if described.network is not None:
        found.append((to.network(described.label), "Network on its own page"))
    found.append((to.versions({"names": described.version.name}), "All versions of the model"))
    if not visit.limited:
        found.append((to.to("/evaluate", {"show": label}), "Evaluations"))
    links = " ".join(f'<a href="{text(where)}">{text(name)}</a>' for where, name in found)
    return Html(f'<p class="contents">{links}</p>')


def statistics(repository: Repository, ref: str, frame: Frame, visit: Visit) -> list[Section]:
    if visit.limited:
        reference = revisions.resolve(repository.database, ref)
        matrices = _matrices(repository, reference)
        size = sum(matrix.nbytes or 0 for matrix in matrices)
        check_bytes(size, visit, f"dlv desc {reference.version.label} --stats")
    described = describe.describe(repository, ref, statistics=True)
    return version_sections.statistics(described, frame, _norms(repository, described))


def _norms(repository: Repository, described: Description) -> dict[str, list[float]]:
    """L2 norm of each tensor over the checkpoints, where these are few and small enough."""
    kept = [line.removed for line in described.snapshots]
    checkpoints = [
        s for s, gone in zip(described.manifest.snapshots, kept, strict=True) if not gone
    ]
    if not 1 < len(checkpoints) <= MOST_CHECKPOINTS:
        return {}
    wanted = {matrix.name: matrix for matrix in described.matrices if not matrix.tied}
    held = {
        tensor.name: [s.hashes[at] for s in checkpoints if s.hashes[at] is not None]
        for at, tensor in enumerate(described.manifest.tensors)
        if tensor.name in wanted
    }
    size = sum((wanted[name].nbytes or 0) * len(set(hashes)) for name, hashes in held.items())
    if size > MOST_NORMS:
        return {}
    with closing(MatrixStore.of(repository)) as store:
        raws = retrieval.related(store, [h for hashes in held.values() for h in hashes if h])
    norms: dict[str, float] = {}
    for name, hashes in held.items():
        for digest in hashes:
            if digest is not None and digest not in norms:
                found = weight_statistics.statistics(wanted[name].dtype, raws[digest], 1)
                norms[digest] = math.nan if found is None or found.l2 is None else found.l2
    return {name: [norms[h] for h in hashes if h] for name, hashes in held.items()}


def network(
    repository: Repository, ref: str, frame: Frame, *, fold: bool
) -> tuple[str, list[Section], Html]:
    described = describe.describe(repository, ref)
    if described.network is None:
        raise NotFound(f"{described.version.label} has no network")
    sketch = network_picture.sketch(described.network, described.tensors, fold=fold)
    folded = any(name.startswith("\0") for name in sketch.cards)
    lead = Html("")
    if folded:
        where = frame.addresses.network(described.label, {"fold": "0"})
        lead = Html(f'<p><a href="{text(where)}">Show repeated blocks one by one</a></p>')
    elif not fold:
        where = frame.addresses.network(described.label)
        lead = Html(f'<p><a href="{text(where)}">Fold repeated blocks</a></p>')
    sections = version_sections.network(described, frame, fold=fold)
    return described.label, sections, lead


def file(repository: Repository, ref: str, path: str, frame: Frame) -> tuple[str, list[Section]]:
    """A file of a version, with its language in colors."""
    label, entry = _entry(repository, ref, path)
    save = ""
    if entry.bytes <= MOST_SAVED:
        size = human_bytes(entry.bytes)
        address = text(frame.addresses.raw(label, path))
        save = f'<p class="contents"><a href="{address}" download>Save, {size}</a></p>'
    if entry.bytes > MOST_FILE:
        told = frame.html(f"{human_bytes(entry.bytes)}: too large to show")
        return label, [Section("", Html(save + told))]
    content = FileStore(repository.files_git).read(entry)
    if b"\0" in content:
        return label, [Section("", Html(save + frame.html("a binary file")))]
    shown = _highlighted(path, content.decode("utf-8", "replace"))
    return label, [Section("", Html(save + shown))]


def file_content(repository: Repository, ref: str, path: str) -> tuple[str, bytes]:
    """Return the last part of a file's path, and its content."""
    label, entry = _entry(repository, ref, path)
    if entry.bytes > MOST_SAVED:
        raise UsageError(
            f"{path} has {human_bytes(entry.bytes)}", hint=f"in a clone: dlv show {label}:{path}"
        )
    return path.rpartition("/")[2], bytes(FileStore(repository.files_git).read(entry))


def _entry(repository: Repository, ref: str, path: str) -> tuple[str, FileEntry]:
    found = revisions.whole(repository.database, ref)
    manifest = repository.manifest(found.version.id)
    entry = next((entry for entry in manifest.files if entry.path == path), None)
    if entry is None:
        raise NotFound(f"{found.version.label} has no file `{path}`")
    return found.version.label, entry


def _highlighted(path: str, content: str) -> Html:
    lexers = require("pygments.lexers", "ui")
    formatters = require("pygments.formatters", "ui")
    pygments = require("pygments", "ui")
    try:
        lexer = lexers.get_lexer_for_filename(path, content)
    except Exception:  # lexers fail in many ways
        lexer = lexers.get_lexer_by_name("text")
    shown = "\n".join(text_line(line) for line in content.split("\n"))
    formatter = formatters.HtmlFormatter(nowrap=True, classprefix="tok-")
    body = pygments.highlight(shown, lexer, formatter)
    region = f'tabindex="0" role="region" aria-label="{text(path)}"'
    return Html(f'<pre class="code" {region}>{body}</pre>')


def text_line(line: str) -> str:
    """A line without characters that turn or hide others; HTML is escaped later."""
    return "\t".join(escape(piece) for piece in line.rstrip("\r").split("\t"))


# Comparison


def compare(
    repository: Repository,
    refs: Sequence[str],
    frame: Frame,
    visit: Visit,
    *,
    everything: bool,
    jobs: int,
) -> tuple[str, list[Section], Html]:
    """All differences; where much has to be read for the weights, these come later."""
    if len(refs) > MOST_COMPARED:
        raise UsageError(f"at most {MOST_COMPARED} versions are compared at once")
    size = bytes_that_differ(repository, refs)
    later = size > LATER
    quick = tuple(name for name in diffing.SECTIONS if name != "matrices")
    found = diffing.diff(
        repository, refs, sections=quick if later else (), everything=everything, jobs=jobs
    )
    sections = []
    for section in comparison.sections(repository, found, frame, everything=everything):
        if section.title == "curves":
            labels = dict.fromkeys(side.version.label for side in found.sides)
            section = _live_curves(section, frame.addresses.curves(labels))
        sections.append(section)
    if later:
        place = next((n for n, s in enumerate(sections) if s.title.startswith("network")), None)
        query = [*(("v", ref) for ref in refs), *([("all", "1")] if everything else [])]
        source = frame.addresses.to("/weights", query)
        part = Section(comparison.MOVED, waiting(source, "Comparing weights …"))
        if size > visit.weights:
            words = f"{human_bytes(size)} of weights would be read. In a clone: dlv diff"
            part = Section(comparison.MOVED, frame.html(f"{words} {' '.join(refs)}"))
        sections.insert(len(sections) if place is None else place, part)
    other = frame.addresses.compare(refs, {} if everything else {"all": "1"})
    words = "Only differences" if everything else "Show what is the same, too"
    turned = frame.addresses.compare([*refs[1:], refs[0]])
    lead = Html(
        f'<p class="contents"><a href="{text(other)}">{words}</a>'
        f' <a href="{text(turned)}">Take {text(refs[1])} as the base</a></p>'
    )
    return comparison.title(found), sections, lead


def _matrices(repository: Repository, found: revisions.Reference) -> list[snapshots.Matrix]:
    index = None if found.snapshot is None else found.snapshot.index
    return snapshots.matrices(repository.manifest(found.version.id), index)


def bytes_that_differ(repository: Repository, refs: Sequence[str]) -> int:
    """Bytes of the tensors that have to be read to compare the weights."""
    resolved = [revisions.resolve(repository.database, ref) for ref in refs]
    base, *others = [_matrices(repository, each) for each in resolved]
    hashes = {matrix.hash for matrix in base}
    return sum(
        2 * (matrix.nbytes or 0)
        for matrices in others
        for matrix in matrices
        if matrix.hash not in hashes
    )


def weights(
    repository: Repository,
    refs: Sequence[str],
    frame: Frame,
    job: Job,
    *,
    everything: bool,
    jobs: int,
) -> list[Section]:
    """The part of a comparison for which weights are read."""
    done = 0

    def advance(count: int) -> None:
        nonlocal done
        done += count
        job.told = f"Comparing weights: {human_bytes(done)} read"

    found = diffing.diff(
        repository, refs, sections=("matrices",), everything=everything, jobs=jobs, progress=advance
    )
    sections = comparison.sections(repository, found, frame, everything=everything, charts=[])
    return [
        Section("" if section.title == comparison.MOVED else section.title, section.body)
        for section in sections
        if section.title.startswith((comparison.MOVED, "tensors"))
    ]


# Queries


def query(
    repository: Repository, words: str, frame: Frame, visit: Visit, *, explain: bool
) -> dict[str, Any]:
    """What the page needs: sections, or what is wrong with the query and where."""
    saved = [
        {"name": q.name, "text": " ".join(q.text.split()), "address": frame.addresses.query(q.text)}
        for q in saved_queries.list_queries(repository)
    ]
    answered: dict[str, Any] = {"sections": [], "faults": "", "saved": saved, "examples": []}
    # What columns are called is up to the query.
    frame = frame.leading(lambda _, cell: frame.addresses.links("version", cell))
    if not words.strip():
        answered["examples"] = [
            {"text": each, "address": frame.addresses.query(each)} for each in EXAMPLES
        ]
        return answered
    saved_text = next(
        (q.text for q in saved_queries.list_queries(repository) if q.name == words), None
    )
    options = QueryOptions(
        cache_folder=paths.cache(os.environ),
        directory=repository.root,
        dry_run=True,  # this page changes nothing
        explain=explain,
    )
    try:
        if visit.limited:
            _check_statements(repository, words, visit)
        with visit.limiting(repository):
            for outcome in execute.run(repository, saved_text or words, options):
                found = answer.sections(
                    repository, outcome, frame, most=MOST_ROWS, counted=not visit.limited
                )
                answered["sections"] += [section.html() for section in found.sections]
                if not found.count and not found.sections:
                    answered["sections"].append(frame.html("nothing matches"))
    except DlvError as error:
        answered["faults"] = _faults(error)
    return answered


def _check_statements(repository: Repository, words: str, visit: Visit) -> None:
    """Raise UsageError for what visitors may not do: train, save, read files of the server.

    What has no limit on its time is refused, too.
    """
    if len(words) > MOST_QUERY:
        raise UsageError(f"a query has at most {MOST_QUERY:,} characters here", hint=_CLONE)
    few = len(versions.all_versions(repository.database)) <= visit.versions
    for statement in parser.parse(words, paths.cache(os.environ)):
        for part in parts_of(statement):
            if isinstance(part, (ast.Define, ast.Evaluate)):
                word = "define" if isinstance(part, ast.Define) else "evaluate"
                raise UsageError(f"`{word}` is not possible here", hint=_CLONE)
            if isinstance(part, ast.Derived) and not few:
                raise UsageError("too many versions to derive networks here", hint=_CLONE)
            if isinstance(part, ast.Matches) or (isinstance(part, ast.Selector) and part.regular):
                hint = 'use a pattern: m["conv*"]'
                raise UsageError("regular expressions are not possible here", hint=hint)


def parts_of(tree: object) -> Iterator[ast.Part]:
    """Yield a tree and all trees in it."""
    if isinstance(tree, ast.Part):
        yield tree
        for field in dataclasses.fields(tree):
            yield from parts_of(getattr(tree, field.name))
    elif isinstance(tree, tuple):
        for part in tree:
            yield from parts_of(part)


def _faults(error: DlvError) -> str:
    """Each fault below its line, with a caret where it begins."""
    if not error.spots:
        return "\n".join(filter(None, (error.message, error.why, error.hint)))
    return "\n\n".join(
        "\n".join(filter(None, (spot.message, spot.line, spot.mark, spot.hint)))
        for spot in error.spots
    )


def complete(repository: Repository, words: str, visit: Visit = OWNER) -> list[dict[str, Any]]:
    """What may come next in a query."""
    environ = {} if visit.limited else dict(os.environ)
    look = partial(completion.complete, directory=str(repository.root), environ=environ)
    cache = paths.cache(os.environ)
    found = completing.completions(words, look, lambda before: parser.accepted(before, cache))
    return [{"text": each.text, "replaced": each.replaced} for each in found[:60]]


# Sweeps


def sweeps(repository: Repository, frame: Frame) -> list[Section]:
    if not repository.trials_path.exists():
        return []
    with Trials(repository.trials_path) as store:
        runs = Ledger(store).runs()
    if not runs:
        return []
    _, table = trials_view.runs(runs)

    def leads(title: str, cell: object) -> str | None:
        if title == "sweep" and isinstance(cell, Id):
            return frame.addresses.to(f"/sweeps/{cell.value}")
        return None

    return [Section("", frame.leading(leads).table(table, caption="sweeps"))]


def sweep(repository: Repository, name: str, frame: Frame) -> tuple[str, str, list[Section]]:
    if not repository.trials_path.exists():
        raise NotFound(f"no such sweep: {name}")
    with Trials(repository.trials_path) as store:
        fit = [row["id"] for row in store.runs() if str(row["id"]).startswith(name)]
        if len(fit) != 1:
            raise NotFound(f"no such sweep: {name}")
        book = Ledger(store)
        run, results = book.run(fit[0]), book.result(fit[0])
        sections = sweep_sections.sections(run, results, book.curves, frame)
    if run.condition == "running":
        sections[0] = Section("", Html(f'<div data-again="3">{sections[0].body}</div>'))
    return run.id, " ".join(run.text.split()), sections


# Evaluations


def evaluations(
    repository: Repository, frame: Frame, asked: Mapping[str, str]
) -> tuple[Html, list[Section]]:
    """A form to evaluate a version, and what was evaluated before."""
    labels = {row.id: row.label for row in versions.all_versions(repository.database)}
    evaluations_saved = saved_evaluations.saved_evaluations(repository.database)[::-1]
    shown = asked.get("show")
    if shown:
        evaluations_saved = [
            each for each in evaluations_saved if labels.get(each.version) == shown
        ]
    rows: list[list[Cell]] = [
        [
            labels.get(each.version, each.version[:12]),
            each.step,
            each.data_set,
            each.data.get("rows"),
            Items([f"{name}={_figure(value)}" for name, value in each.data["metrics"].items()]),
            each.data.get("mode"),
            Time(each.created),
        ]
        for each in evaluations_saved[:MOST_EVALUATIONS]
    ]
    columns: list[Column | str] = [
        Column("version"),
        "step",
        "data",
        "examples",
        Column("metrics"),
        "mode",
        "age",
    ]
    sections = []
    if rows:
        table = frame.table(Table(columns, rows), caption="evaluations")
        of = f" of {shown}" if shown else ""
        sections.append(Section(f"saved evaluations{of}", table))
    data = data_sets(repository)
    action = frame.addresses.to("/evaluate")
    return Html(_form(action, list(labels.values()), data, asked)), sections


def data_sets(repository: Repository) -> list[str]:
    """What can be evaluated on: data sets in the project's folder, and those of versions as
    VERSION:PATH, newest first, each content once."""
    lying = [
        path for path in sorted(repository.root.glob("*.npz")) if detect.is_data_set(str(path))
    ]
    found: dict[str, str] = {}
    for row in versions.all_versions(repository.database)[:MOST_DATA]:
        for entry in repository.manifest(row.id).files:
            if entry.role == "data":
                found.setdefault(entry.blake3, f"{row.label}:{entry.path}")
    return [*(path.name for path in lying[:MOST_FILES]), *found.values()]


def _figure(value: object) -> str:
    return f"{value:.4g}" if isinstance(value, float) else str(value)


def _form(action: str, labels: Sequence[str], data: Sequence[str], asked: Mapping[str, str]) -> str:
    options = "".join(f'<option value="{text(label)}"></option>' for label in labels[:500])
    sets = "".join(
        f"<option{' selected' if name == asked.get('data') else ''}>{text(name)}</option>"
        for name in data
    )
    checked = " checked" if asked.get("progressive") else ""
    ref = asked.get("ref") or asked.get("show") or ""
    return (
        f'<form class="filter" action="{text(action)}" method="get"><label>Version '
        f'<input id="search" name="ref" list="versions" value="{text(ref)}" required'
        f' autocomplete="off"></label><datalist id="versions">{options}</datalist>'
        '<label class="check">Data <select name="data"><option value="">of the version</option>'
        f"{sets}</select></label>"
        f'<label class="check"><input type="checkbox" name="progressive" value="1"{checked}> '
        "progressive: read only the bytes that decide</label><button>Evaluate</button>"
        '<p class="soft">Nothing is saved.</p></form>'
    )


def evaluate(
    repository: Repository, asked: Mapping[str, str], frame: Frame, job: Job
) -> list[Section]:
    """Evaluate on the data of the version; the job is told how it goes."""

    def watch(done: Progress) -> None:
        job.progress.append((float(done.bytes_read), float(done.done), float(done.rows)))
        if len(job.progress) > 4000:
            del job.progress[1::2]

    data = asked.get("data") or None
    if data is not None and data not in data_sets(repository):
        raise NotFound(f"no data set `{data}` here")
    request = evaluating.Request(
        words=[asked["ref"]],
        data=data,
        directory=repository.root,
        progressive="guaranteed" if asked.get("progressive") else None,
        confusion=True,
        mistakes=evaluating.MISTAKES,
        watch=watch,
    )
    with evaluating.evaluate(repository, request) as found:
        return evaluation.sections(found, frame)


def waiting(source: str, words: str) -> Html:
    """A place for what comes when it is ready."""
    return Html(
        f'<div data-part="{text(source)}" data-now aria-busy="true"><p role="status">'
        f"{text(words)}</p></div>"
    )


def progress(job: Job) -> Html:
    """How far a job is, as a picture where there is something to draw."""
    if not job.progress:
        return Html(f'<p role="status">{text(job.told)}</p>')
    read, done, whole = job.progress[-1]
    standing = f"{done:,.0f} of {whole:,.0f} examples decided, {human_bytes(round(read))} read"
    drawn = Html("")
    if len(job.progress) > 2:
        points = [(x, 100 * y / max(whole, 1)) for x, y, _ in job.progress]
        drawn = plots.scatter(
            "examples decided against bytes read",
            [Dot(*points[-1], standing)],
            Axis("bytes read", "bytes"),
            Axis("examples decided", "percent"),
            [points],
        )
    return Html(f'<p role="status">{text(standing)}</p>{drawn}')


# Storage


def has_many_versions(repository: Repository) -> bool:
    """Return whether there are too many versions to examine before the page is sent."""
    return len(versions.all_versions(repository.database)) > MANY


def storage(
    repository: Repository, frame: Frame, asked: Mapping[str, str], begin: Callable[[str], str]
) -> list[Section]:
    """What takes space; with `plan` in the address also what limits on reading would cost."""
    usage = stats.stats(repository, [])
    if not usage.rows:
        return []
    blocks = disk_view.blocks(usage, "version")
    totals, *tables = storage_sections.disk_usage(usage, "version", blocks, frame)
    graph = storage_sections.graph(repository)
    sections = [totals, Section("what is stored against what", graph), *tables]
    plan = _planning(frame.addresses.to("/storage#plan"), asked, begin)
    words = frame.html(
        "How small the weights could be under limits on reading time. The first time, deltas "
        "between all versions are measured, which can take minutes; nothing is changed."
    )
    return [*sections, Section("storage against reading time", Html(words + plan))]


def _planning(action: str, asked: Mapping[str, str], begin: Callable[[str], str]) -> Html:
    """The form, and the plan where it was asked for."""
    alpha = asked.get("alpha", "")
    form = (
        f'<form class="filter" action="{text(action)}" method="get" id="plan">'
        '<input type="hidden" name="plan" value="1"><label class="check">Reading may take, times '
        'the fastest possible <input name="alpha" type="number" min="1" step="0.1"'
        f' placeholder="as configured" value="{text(alpha)}"></label>'
        "<button>Measure deltas and plan</button></form>"
    )
    if not asked.get("plan"):
        return Html(form)
    return Html(form + waiting(begin(alpha), "Measuring deltas …"))


def plan(repository: Repository, alpha: str, frame: Frame, jobs: int, job: Job) -> list[Section]:
    """As `archive --dry-run`: today, the plan, and what other limits would cost."""
    limit = None
    if alpha:
        try:
            limit = float(alpha)
        except ValueError as error:
            raise UsageError(f"`{alpha}` is not a number") from error
    request = proposal.Request(
        policy=budgets.Policy(alpha=budgets.factor(limit)),
        jobs=jobs,
        speeds=speeds.of_machine(speeds.folder(os.environ)),
        explore=True,
    )
    bar = _Bar(job)
    outcome = archiving.archive(
        repository, request, dry_run=True, progress=lambda *_: nullcontext(bar)
    )
    _, blocks = archive_view.archived(outcome)
    return storage_sections.plan(outcome, blocks, frame)


class _Bar:
    """Progress of the planner, as a line for the page."""

    def __init__(self, job: Job) -> None:
        self._job, self._done = job, 0

    def advance(self, count: int) -> None:
        self._done += count
        self._job.told = f"Measuring deltas: {human_bytes(self._done)} read"
