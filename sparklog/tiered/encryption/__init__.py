"""Encryption of copies, so that only the owner of a key ring can read them.

- `envelope`: data keys, wrapped by a master key; `policy`: whether a log's copies are encrypted
- `key_rotation`: wraps data keys by a new master key. The key ring: `sparklog.tiered.keyring`
"""
