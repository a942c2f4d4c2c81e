"""Settings of Spark sessions: sparklog's jar, log-backed checkpoints and the Python workers.

- `setup`: returns the settings of a new session, including the checkpoint manager's, and sets up a
  running session
- `doctor`: examines a session; `worker_probe`: what its Python workers have
- `daemon`: the daemon of the Python workers, with preloaded modules
"""
