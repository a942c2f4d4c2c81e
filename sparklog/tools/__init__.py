"""What the command line does, as Python functions: no terminal, no Spark."""
