"""Encryption of copies, which only the owner of a key ring can read.

- `envelope`: data keys, wrapped by a master key; `policy`: whether a log's copies are encrypted
- `key_rotation`: wraps data keys by a new master key. The key ring: `sparklog.tiered.keyring`
"""
