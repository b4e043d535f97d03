"""Who published what under a name, in order: the chain of refs, read, checked and extended."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import dlv.disk.durable as durable
from dlv.canonical import hash_bytes
from dlv.errors import Damaged, NewerFormat, RemoteError, UnsafeInput
from dlv.hub.locator import MOST_BYTES, Locator, decode_locator
from dlv.hub.records import MOST_REF, Ref, decode_ref, hint_key, object_key, ref_key
from dlv.hub.stores.interface import MissingObject, Store
from dlv.objects.manifest import NAME

NAMES, MOST_NAMES = "index/names.json", 16 << 20
BATCH = 16  # refs that are asked for at once
MOST_MANIFEST = 16 << 20
MOST = {"manifests": MOST_MANIFEST, "locators": MOST_BYTES, "facts": MOST_MANIFEST}


class History:
    """The refs and locators of a remote; what was read once is kept in `cache`."""

    def __init__(self, store: Store, cache: Path, tmp: Path) -> None:
        self.store, self.cache, self._tmp = store, cache, tmp
        self._chains: dict[str, list[Ref]] = {}

    def names(self) -> list[str]:
        """Every name that something was published under.

        A web server cannot list: there the list counts that publishers leave.
        """
        if self.store.writable:
            keys = self.store.keys("refs/")
            found = {key.split("/")[1] for key in keys if key.count("/") >= 2}
            return sorted(name for name in found if NAME.match(name))
        data = self.store.find(NAMES, most=MOST_NAMES)
        try:
            found = json.loads(data or b"{}")["names"]
            return sorted(name for name in found if isinstance(name, str) and NAME.match(name))
        except (ValueError, KeyError, TypeError, RecursionError):
            return []

    def note_names(self, names: Iterable[str]) -> None:
        """Leave the list of names for those who cannot list them."""
        data = json.dumps({"names": sorted(set(names))}).encode()
        with contextlib.suppress(RemoteError):
            if self.store.find(NAMES, most=MOST_NAMES) != data:
                self.store.put(NAMES, data)

    def chain(self, name: str, remembered: tuple[int, str] | None) -> list[Ref]:
        """All refs of a name, oldest first. `remembered`: (seq, hash) of the last one seen."""
        chain = self._chains.get(name) or self._cached(name)
        known = len(chain)
        self._extend(name, chain, self._hint(name))
        if remembered is not None:
            _check_remembered(self.store.url, name, chain, remembered)
        self._chains[name] = chain
        if len(chain) > known:
            self._keep(name, chain)
        return chain

    def known(self, name: str) -> list[Ref]:
        """What an earlier command has read of them; the remote is not asked."""
        return self._chains.get(name) or self._cached(name)

    def append(self, ref: Ref) -> bool:
        """Publish a ref by one PUT-if-absent; False: another writer was first.

        After an error nobody knows whether it was written, so it is read: our nonce is in it.
        """
        data, key = ref.encode(), ref_key(ref.name, ref.seq)
        try:
            won = self.store.create(key, data)
        except RemoteError:
            there = self.store.find(key, most=MOST_REF)
            if there is None:
                raise
            won = there == data
        if not won:
            won = self.store.find(key, most=MOST_REF) == data
        if won:
            chain = [*self.known(ref.name), ref]
            self._chains[ref.name] = chain
            self._keep(ref.name, chain)
            with contextlib.suppress(RemoteError):  # it only saves requests
                self.store.put(hint_key(ref.name), json.dumps({"seq": ref.seq}).encode())
        return won

    def object(self, kind: str, digest: str) -> bytes:
        """A manifest, locator or fact, checked against its name and kept."""
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
            raise RemoteError(
                f"{self.store.url} has lost {error.key}", hint="publish the version again"
            ) from None
        if hash_bytes(data) != digest:
            raise UnsafeInput(
                f"{object_key(kind, digest)} at {self.store.url} is not what its name says"
            )
        durable.make_directory(path.parent)
        durable.replace(path, data, tmp_dir=self._tmp)
        return data

    def locator(self, ref: Ref) -> Locator:
        found = decode_locator(
            self.object("locators", ref.locator), f"locator of {ref.name}@{ref.number}"
        )
        if found.version != ref.manifest:
            raise UnsafeInput(f"the locator of {ref.name}@{ref.number} is of another version")
        return found

    def locators(self, refs: Iterable[Ref]) -> list[Locator]:
        """Of each version the newest one, read side by side."""
        newest = {ref.manifest: ref for ref in refs if ref.kind in ("publish", "reencode")}
        with ThreadPoolExecutor(8) as pool:
            return list(pool.map(self.locator, newest.values()))

    def _hint(self, name: str) -> int:
        """How many refs there are at least, as far as somebody has noted."""
        data = self.store.find(hint_key(name), most=MOST_REF)
        try:
            seq = json.loads(data or b"{}").get("seq", 0)
        except (ValueError, AttributeError, RecursionError):
            return 0
        return seq if type(seq) is int and 0 <= seq < 1 << 40 else 0

    def _extend(self, name: str, chain: list[Ref], hint: int) -> None:
        """Read on until there is no next one: refs are dense, and the hint may be stale."""
        with ThreadPoolExecutor(BATCH) as pool:
            while True:
                begin = len(chain) + 1
                count = min(max(1, hint - len(chain)), BATCH)
                found = list(
                    pool.map(lambda seq: self._ref(name, seq), range(begin, begin + count))
                )
                for ref in found:
                    if ref is None:
                        if len(chain) < hint and len(chain) >= begin:
                            hint = len(chain)  # the hint tells too much: it is no promise
                        return
                    _check_link(self.store.url, name, chain, ref)
                    chain.append(ref)

    def _ref(self, name: str, seq: int) -> Ref | None:
        data = self.store.find(ref_key(name, seq), most=MOST_REF)
        if data is None:
            return None
        try:
            return decode_ref(data, f"{ref_key(name, seq)} at {self.store.url}")
        except NewerFormat:
            raise
        except Damaged as error:
            raise UnsafeInput(error.message, why=error.why) from None

    def _cached(self, name: str) -> list[Ref]:
        """The chain as it was kept; whatever does not fit any more is read again."""
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
        why = f"it had {seq} entries when it was read last, and has {len(chain)} now"
        if len(chain) >= seq:
            why = f"entry {seq} is another one than when it was read last"
        raise UnsafeInput(
            f"the history of {name} at {url} was changed",
            why=why,
            hint="ask the maintainer of the remote",
        )


def published(chain: Iterable[Ref]) -> dict[str, Ref]:
    """Manifest -> the ref that published it, of versions that were not retired since."""
    found: dict[str, Ref] = {}
    for ref in chain:
        if ref.kind == "publish":
            found[ref.manifest] = ref
        elif ref.kind == "retire":
            found.pop(ref.manifest, None)
    return found
