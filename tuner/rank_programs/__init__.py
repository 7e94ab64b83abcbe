"""The programs that run inside ranks for probes, validation and trials."""
