"""Overviews of files in any form: their kind, what is slow in them, and commands that take them."""

from tuner.overview.files import NOT_READ, open_files, open_sent_files, overviews_record
from tuner.overview.overview import Command, Overview
from tuner.overview.recognition import open_file
from tuner.overview.time_ratios import TimeComparison, compare_overviews

__all__ = [
    "NOT_READ",
    "Command",
    "Overview",
    "TimeComparison",
    "compare_overviews",
    "open_file",
    "open_files",
    "open_sent_files",
    "overviews_record",
]
