"""Seals the copies of a bucket in place, as a service with a key ring would have put them."""

from dataclasses import replace

import crc32c

from sparklog.tiered.encryption.envelope import new_data_key
from sparklog.tiered.keyring import Keyring
from sparklog.tiered.layout.manifest import parse, to_bytes
from sparklog.tiered.object_store.store import Store

RING = Keyring({"one": bytes(range(32))}, "one")


def encrypt(store: Store, ring: Keyring = RING) -> None:
    for one in store.list():
        if not one.name.endswith(".manifest"):
            continue
        manifest, body = parse(store.get(one.name), path=one.name)
        key, wrapped = new_data_key(ring, manifest.segment.id, chunk_bytes=512)
        plain = store.get(manifest.log_name)
        sealed = b"".join(key.seal([plain], len(plain)))
        store.put(manifest.log_name, sealed)
        changed = replace(
            manifest, stored_size=len(sealed), stored_crc32c=crc32c.crc32c(sealed),
            encryption=wrapped,
        )  # fmt: skip
        store.put(one.name, to_bytes(changed, key.seal_body(body)))
