"""Objects in a bucket.

- `object_names`: object names, which suffice to find a segment
- `manifest`: a segment's indexes and metadata, as an object
- `wrapped_key`: an encrypted segment's data key, as stored in its manifest
- `topic_owners`: which log owns which topics in the bucket
"""
