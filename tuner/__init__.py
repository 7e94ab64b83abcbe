"""tuner: the fastest algorithm for every collective call of one cluster, with validation."""

__version__ = "0.2.0"
