"""One module per verb of `tuner`: its options, and what it does."""
