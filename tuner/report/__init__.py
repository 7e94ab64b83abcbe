"""Reports of what was gained or lost, in numbers, words and pictures."""

from tuner.report.summary import LibraryResult, geometric_mean_speedup, split_control, summarise

__all__ = ["LibraryResult", "geometric_mean_speedup", "split_control", "summarise"]
