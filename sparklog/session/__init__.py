"""Settings of Spark sessions: sparklog's jar, log-backed checkpoints and the Python workers.

- `setup`: returns the settings of a new session, including the checkpoint manager's, and sets up a
  running session
- `daemon`: the daemon of the Python workers, with preloaded modules
"""
