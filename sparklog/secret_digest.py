"""Digests that replace options in cache keys, because storage options contain secrets."""

import hashlib
import json
import os
from typing import Final

_SALT: Final = os.urandom(32)  # without it, a weak secret could be guessed from its digest


def secret_digest(*values: object) -> str:
    """Return a digest of `values`. Equal values have equal digests in a process and its forks.

    Mappings are equal regardless of the order of their keys. Values without a JSON form are
    compared by repr.
    """
    text = json.dumps(values, sort_keys=True, default=repr)
    return hashlib.blake2b(text.encode(), key=_SALT, digest_size=32).hexdigest()
