"""Small versions, and publishers that write them to a hub without a network."""

from __future__ import annotations

import os
import threading

import sqlalchemy as sa

from dlv.canonical import hash_bytes, timestamp
from dlv.dataclass import dataclass
from dlv.hub.history import successor
from dlv.hub.locator import Locator
from dlv.hub.records import Ref, decode_ref
from dlv.hub.server import accounts, objects, repositories, tables
from dlv.hub.server.access import Caller, Place, Role, place_of
from dlv.hub.server.hub import Hub
from dlv.hub.server.refusal import Refused
from dlv.objects.manifest import Manifest


@dataclass(frozen=True)
class Version:
    """The bytes of a version without tensors, and of a pack that its locator names."""

    manifest: bytes
    locator: bytes
    pack: bytes

    @classmethod
    def of(cls, name: str, message: str, pack: bytes) -> Version:
        manifest = Manifest(name, message, "Ada <ada@example.org>", timestamp()).encode()
        locator = Locator(hash_bytes(manifest), [hash_bytes(pack)]).encode()
        return cls(manifest, locator, pack)

    @property
    def objects(self) -> dict[tuple[str, str], bytes]:
        named = (("packs", self.pack), ("manifests", self.manifest), ("locators", self.locator))
        return {(kind, hash_bytes(data)): data for kind, data in named}


class Publisher:
    """Publishes to one repository of an open hub, which it creates if it has to."""

    def __init__(self, hub: Hub, namespace: str = "acme", name: str = "vision") -> None:
        self.hub = hub
        with hub.database.writing() as connection:
            query = sa.select(tables.account.c.id).where(tables.account.c.name == namespace)
            user = connection.execute(query).scalar()
            if user is None:
                user = accounts.add_user(connection, Caller(), namespace)
        self.caller = Caller(user_id=user, name=namespace, origin="test")
        label = f"{namespace}/{name}"
        if self._found(namespace, name) is None:
            repositories.create(hub, self.caller, user, label, "private", "")
        place = self._found(namespace, name)
        assert place is not None
        self.place = place

    def _found(self, namespace: str, name: str) -> Place | None:
        with self.hub.database.reading() as connection:
            return place_of(connection, self.caller, namespace, name)

    def send(self, version: Version) -> None:
        """Send what the hub lacks."""
        wanted = [
            objects.Wanted(kind, digest, len(data))
            for (kind, digest), data in version.objects.items()
        ]
        for each, upload in objects.batch(self.hub, self.caller, self.place, wanted):
            if upload is not None:
                data = version.objects[each.kind, each.hash]
                objects.receive(self.hub, self.place, upload, data, start=0, complete=True)

    def chain(self, model: str) -> list[Ref]:
        with self.hub.database.reading() as connection:
            records = repositories.records_of(connection, self.place.id, model, 0, 100_000)
        return [decode_ref(record, model) for record in records]

    def publish(self, model: str, pack: bytes | None = None, message: str = "a version") -> Ref:
        """Publish a version; try again if another publisher was first."""
        version = Version.of(model, message, os.urandom(200) if pack is None else pack)
        self.send(version)
        while True:
            chain = self.chain(model)
            ref = successor(
                chain,
                "publish",
                name=model,
                number=1 + sum(each.kind == "publish" for each in chain),
                manifest=hash_bytes(version.manifest),
                locator=hash_bytes(version.locator),
                author="Ada <ada@example.org>",
            )
            try:
                repositories.publish(
                    self.hub, self.caller, self.place, model, ref.seq, ref.encode()
                )
            except Refused as refused:
                if refused.status != 412:
                    raise
            else:
                return ref

    def retire(self, published: Ref) -> None:
        ref = successor(
            self.chain(published.name),
            "retire",
            name=published.name,
            number=published.number,
            manifest=published.manifest,
            locator=published.locator,
            author="Ada <ada@example.org>",
        )
        assert self.place.role >= Role.MAINTAINER
        name, seq = published.name, ref.seq
        repositories.publish(self.hub, self.caller, self.place, name, seq, ref.encode())


class Publishers:
    """Several threads that publish until they are stopped; `acknowledged` is what was answered."""

    def __init__(self, hub: Hub, count: int) -> None:
        self.acknowledged: list[tuple[str, Ref]] = []
        self.errors: list[BaseException] = []
        self._stop = threading.Event()
        self._publishers = [Publisher(hub, f"user{i % 3}", f"repo{i % 4}") for i in range(count)]
        self._threads = [
            threading.Thread(target=self._run, args=(publisher, f"net{i % 2}"))
            for i, publisher in enumerate(self._publishers)
        ]

    def _run(self, publisher: Publisher, model: str) -> None:
        try:
            while not self._stop.is_set():
                ref = publisher.publish(model)
                self.acknowledged.append((publisher.place.label, ref))
        except BaseException as error:
            self.errors.append(error)

    def __enter__(self) -> Publishers:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        for thread in self._threads:
            thread.join()
