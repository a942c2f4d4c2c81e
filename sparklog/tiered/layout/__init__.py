"""What lies in a bucket.

- `object_names`: names of objects, which say all that finding a segment takes
- `manifest`: a segment's indexes and metadata, as one object
- `wrapped_key`: an encrypted segment's data key, as its manifest keeps it
- `topic_owners`: which log owns which topics there
"""
