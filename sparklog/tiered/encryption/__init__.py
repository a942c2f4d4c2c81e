"""Copies that only the owner of a key ring can read.

- `envelope`: data keys, wrapped by a master key; `policy`: whether a log's copies are encrypted
- `key_rotation`: data keys wrapped anew. The key ring itself: `sparklog.tiered.keyring`
"""
