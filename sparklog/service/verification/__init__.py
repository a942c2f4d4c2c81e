"""What must hold in a log dir, one module a noun. Everything here only reads."""
