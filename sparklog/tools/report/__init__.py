"""A log as typed numbers (build, model), and those as one HTML page (page, live)."""
