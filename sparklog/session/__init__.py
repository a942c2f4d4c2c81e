"""Settings of Spark sessions: sparklog's jar, log-backed checkpoints and the Python workers.

- `setup`: returns the settings of a new session, and sets up a running session
- `checkpoint_settings`: the settings of the checkpoint manager
- `daemon`: the daemon of the Python workers, with preloaded modules
"""
