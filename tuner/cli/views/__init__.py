"""Results as they are printed for people."""
