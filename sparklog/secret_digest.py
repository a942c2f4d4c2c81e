"""Digests that stand for options in the keys of caches: storage options contain secrets."""

import hashlib
import json
import os
from typing import Final

_SALT: Final = os.urandom(32)  # without it, a weak secret could be guessed from its digest


def secret_digest(*values: object) -> str:
    """Return a digest of `values`: equal values have equal digests, in one process and its forks.

    Mappings are equal in whatever order their keys are; what JSON has no form for, by its repr.
    """
    text = json.dumps(values, sort_keys=True, default=repr)
    return hashlib.blake2b(text.encode(), key=_SALT, digest_size=32).hexdigest()
