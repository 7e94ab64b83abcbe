"""What was gained or lost, in numbers, words and pictures."""

from tuner.report.page import render_page
from tuner.report.summary import LibraryResult, geometric_mean, split, summarise

__all__ = ["LibraryResult", "geometric_mean", "render_page", "split", "summarise"]
