"""Streaming checkpoints and state as logs: what a Spark session needs for them.

- `session`: sets up a Spark session; `settings`: the checkpoint manager's, as session conf
- `workers`: whether Python workers find sparklog; `daemon`: their daemon, with imports done
"""
