"""Numbers that a runtime would misread, and that Python would take or choke on."""

from __future__ import annotations

MISREAD = ("04", "\u0664", "1\u0664", "\u00b2", "9" * 5000)  # octal, Arabic, superscript, endless
