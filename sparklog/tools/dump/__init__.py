"""kafka-dump-log: its lines, of whole files and of damaged ones."""
