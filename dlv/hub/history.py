"""The history of each model on a remote: a chain of refs that is read, verified and extended."""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import dlv.disk.durable as durable
from dlv.canonical import hash_bytes, timestamp
from dlv.errors import Damaged, RemoteError, UnsafeInput
from dlv.hub.locator import MOST_BYTES, Locator, decode_locator
from dlv.hub.records import MOST_REF, Ref, decode_ref, hint_key, object_key, ref_key
from dlv.hub.stores.interface import MissingObject, Store
from dlv.objects.manifest import NAME

NAMES, MOST_NAMES = "index/names.json", 16 << 20
BATCH = 16  # refs requested at once
PAGE = 1000  # refs in one answer of a hub
MOST_MANIFEST = 16 << 20
MOST = {"manifests": MOST_MANIFEST, "locators": MOST_BYTES, "facts": MOST_MANIFEST}


class History:
    """Reads refs, locators, manifests and facts of a remote, and caches them."""

    def __init__(self, store: Store, cache: Path, tmp: Path) -> None:
        self.store, self.cache, self._tmp = store, cache, tmp
        self._chains: dict[str, list[Ref]] = {}

    def names(self) -> list[str]:
        """Return all model names, from a listing or from the list that publishers keep.

        A web server cannot be listed.
        """
        if self.store.listable:
            return sorted(name for name in self.store.names() if NAME.match(name))
        data = self.store.find(NAMES, most=MOST_NAMES)
        try:
            listed = json.loads(data or b"{}")["names"]
            return sorted(name for name in listed if isinstance(name, str) and NAME.match(name))
        except (ValueError, KeyError, TypeError, RecursionError):
            return []

    def note_names(self, names: Iterable[str]) -> None:
        """Write the list of names for clients that read over a web server."""
        if self.store.managed:
            return
        data = json.dumps({"names": sorted(set(names))}).encode()
        with contextlib.suppress(RemoteError):
            if self.store.find(NAMES, most=MOST_NAMES) != data:
                self.store.put(NAMES, data)

    def chain(self, name: str, remembered: tuple[int, str] | None) -> list[Ref]:
        """Return all refs, oldest first; `remembered` is (seq, hash) of the last one seen."""
        chain = self._chains.get(name) or self._cached(name)
        known = len(chain)
        if self.store.managed:
            chain = self._continued(name, chain)
        else:
            if chain and self._ref(name, len(chain)) != chain[-1]:
                # The cache is wrong. Read all refs, and compare them with the remembered head.
                chain, known = [], 0
            self._extend(name, chain, 0 if chain else self._hint(name))
        if remembered is not None:
            _check_remembered(self.store.url, name, chain, remembered)
        self._chains[name] = chain
        if len(chain) != known:
            self._keep(name, chain)
        return chain

    def _continued(self, name: str, chain: list[Ref]) -> list[Ref]:
        """Return all refs on a hub, which sends many at once.

        The last known one is read again. If it differs, so are all others.
        """
        after = max(len(chain) - 1, 0)
        refs = self._records(name, after)
        if chain and refs[:1] != chain[-1:]:
            if after:
                refs = self._records(name, 0)
            after = 0
        chain = chain[:after]
        while True:
            for ref in refs:
                _check_link(self.store.url, name, chain, ref)
                chain.append(ref)
            if len(refs) < PAGE:
                return chain
            refs = self._records(name, len(chain))

    def _records(self, name: str, after: int) -> list[Ref]:
        return [
            self._decoded(data, ref_key(name, after + place))
            for place, data in enumerate(self.store.records(name, after), 1)
        ]

    def known(self, name: str) -> list[Ref]:
        """Return the refs read so far, without contacting the remote."""
        return self._chains.get(name) or self._cached(name)

    def loaded(self) -> list[str]:
        """Return the models whose history was read in this process."""
        return list(self._chains)

    def append(self, ref: Ref) -> bool:
        """Publish a ref by one PUT-if-absent; return False if another writer was first.

        An error can hide a success, so the ref is read back. Its nonce tells whose it is.
        """
        data, key = ref.encode(), ref_key(ref.name, ref.seq)
        try:
            won = self.store.create(key, data)
        except RemoteError:
            if self.store.find(key, most=MOST_REF) is None:
                raise
            won = False
        won = won or self.store.find(key, most=MOST_REF) == data
        if won:
            chain = [*self.known(ref.name), ref]
            self._chains[ref.name] = chain
            self._keep(ref.name, chain)
            if self.store.managed:
                return won
            with contextlib.suppress(RemoteError):  # the hint only saves requests
                self.store.put(hint_key(ref.name), json.dumps({"seq": ref.seq}).encode())
        return won

    def object(self, kind: str, digest: str) -> bytes:
        """Return a manifest, locator or fact, verified by its hash and cached."""
        path = durable.path_of(self.cache / kind, digest, "")
        try:
            data = path.read_bytes()
            if hash_bytes(data) == digest:
                return data
        except OSError:
            pass
        try:
            data = self.store.get(object_key(kind, digest), most=MOST[kind])
        except MissingObject as error:
            raise self.store.incomplete(error) from None
        if hash_bytes(data) != digest:
            raise UnsafeInput(
                f"{object_key(kind, digest)} at {self.store.url} is not what its name says"
            )
        durable.make_directory(path.parent)
        durable.replace(path, data, tmp_dir=self._tmp)
        return data

    def locator(self, ref: Ref) -> Locator:
        label = f"{ref.name}@{ref.number}"
        locator = decode_locator(self.object("locators", ref.locator), f"locator of {label}")
        if locator.version != ref.manifest:
            raise UnsafeInput(f"the locator of {label} belongs to another version")
        return locator

    def locators(self, refs: Iterable[Ref]) -> list[Locator]:
        """Return the newest locator of each version; several are read at a time."""
        newest = {ref.manifest: ref for ref in refs if ref.kind in ("publish", "reencode")}
        with ThreadPoolExecutor(8) as pool:
            return list(pool.map(self.locator, newest.values()))

    def _hint(self, name: str) -> int:
        """Return the noted number of refs, 0 if it is missing or invalid."""
        data = self.store.find(hint_key(name), most=MOST_REF)
        try:
            seq = json.loads(data or b"{}").get("seq", 0)
        except (ValueError, AttributeError, RecursionError):
            return 0
        return seq if type(seq) is int and 0 <= seq < 1 << 40 else 0

    def _extend(self, name: str, chain: list[Ref], hint: int) -> None:
        """Read refs after the known ones. They have no gaps, so the first missing one ends them.

        `hint` only decides how many refs are requested at once, because it can be wrong.
        """
        count = 1
        with ThreadPoolExecutor(BATCH) as pool:
            while True:
                begin = len(chain) + 1
                count = min(max(count, hint - len(chain)), BATCH)
                seqs = range(begin, begin + count)
                for ref in list(pool.map(lambda seq: self._ref(name, seq), seqs)):
                    if ref is None:
                        return
                    _check_link(self.store.url, name, chain, ref)
                    chain.append(ref)
                count *= 2

    def _ref(self, name: str, seq: int) -> Ref | None:
        data = self.store.find(ref_key(name, seq), most=MOST_REF)
        return None if data is None else self._decoded(data, ref_key(name, seq))

    def _decoded(self, data: bytes, key: str) -> Ref:
        try:
            return decode_ref(data, f"{key} at {self.store.url}")
        except Damaged as error:
            raise UnsafeInput(error.message, why=error.why) from None

    def _cached(self, name: str) -> list[Ref]:
        """Return the cached chain up to the first entry that is invalid."""
        chain: list[Ref] = []
        try:
            lines = (self.cache / "refs" / f"{name}.jsonl").read_bytes().splitlines()
            for line in lines:
                ref = decode_ref(line, name)
                _check_link("cache", name, chain, ref)
                chain.append(ref)
        except (OSError, Damaged, UnsafeInput):
            pass
        return chain

    def _keep(self, name: str, chain: list[Ref]) -> None:
        folder = durable.make_directory(self.cache / "refs")
        data = b"".join(ref.encode() + b"\n" for ref in chain)
        durable.replace(folder / f"{name}.jsonl", data, tmp_dir=self._tmp)


def _check_link(url: str, name: str, chain: list[Ref], ref: Ref) -> None:
    before = chain[-1].hash if chain else None
    if (ref.seq, ref.name, ref.prev) != (len(chain) + 1, name, before):
        raise UnsafeInput(
            f"the history of {name} at {url} is broken",
            why=f"entry {len(chain) + 1} does not follow from the one before it",
        )


def _check_remembered(url: str, name: str, chain: list[Ref], remembered: tuple[int, str]) -> None:
    seq, digest = remembered
    if len(chain) < seq or chain[seq - 1].hash != digest:
        why = f"it had {seq} entries when last read, and now has {len(chain)}"
        if len(chain) >= seq:
            why = f"entry {seq} differs from the one read last"
        raise UnsafeInput(
            f"the history of {name} at {url} was changed",
            why=why,
            hint="ask the maintainer of the remote",
        )


def published(chain: Iterable[Ref]) -> dict[str, Ref]:
    """Return the ref of each version that was not retired later, with its newest locator."""
    refs: dict[str, Ref] = {}
    for ref in chain:
        if ref.kind == "publish" or (ref.kind == "reencode" and ref.manifest in refs):
            refs[ref.manifest] = ref
        elif ref.kind == "retire":
            refs.pop(ref.manifest, None)
    return refs


def successor(
    chain: Sequence[Ref],
    kind: str,
    *,
    name: str,
    number: int,
    manifest: str,
    locator: str,
    author: str,
) -> Ref:
    """Return a new ref to append to a history."""
    return Ref(
        seq=len(chain) + 1,
        kind=kind,
        name=name,
        number=number,
        manifest=manifest,
        locator=locator,
        prev=chain[-1].hash if chain else None,
        author=author,
        time=timestamp(),
        nonce=os.urandom(16).hex(),
    )
