"""What lies in a bucket.

- `object_names`: names of objects, which say all that finding a segment takes
- `manifest`: a segment's indexes and metadata, as one object
- `topic_owners`: which log owns which topics there
"""
