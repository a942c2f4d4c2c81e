"""Looking through logs."""
