"""Objects in a bucket.

- `object_names`: object names, which suffice to find a segment
- `manifest`: a segment's indexes and metadata, as an object, with the data key of an encrypted
  segment
- `topic_owners`: which log owns which topics in the bucket
"""
