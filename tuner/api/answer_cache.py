"""A cache of complete answers, bounded in bytes."""

from __future__ import annotations

from collections import OrderedDict

MAX_CACHED_ANSWERS_BYTES = 32 << 20  # bytes of the answers in a process
MAX_SHARE = 0.5  # of these bytes that one answer may take
ENTRY_BYTES = 500  # of an entry besides its question and its answer


class AnswerCache:
    """Complete answers by question, the least recently used of which are dropped."""

    def __init__(self, max_bytes: int = MAX_CACHED_ANSWERS_BYTES) -> None:
        self._answers = OrderedDict[str, bytes]()
        self._max_bytes = max_bytes
        self._bytes = 0

    def get(self, question: str) -> bytes | None:
        """Return the answer, or None where it is not known."""
        if question in self._answers:
            self._answers.move_to_end(question)
        return self._answers.get(question)

    def add(self, question: str, answer: bytes) -> None:
        """Keep an answer unless it is very large, and drop others for it."""
        if _entry_bytes(question, answer) > MAX_SHARE * self._max_bytes:
            return
        if question in self._answers:
            self._bytes -= _entry_bytes(question, self._answers.pop(question))
        self._answers[question] = answer
        self._bytes += _entry_bytes(question, answer)
        while self._bytes > self._max_bytes:
            self._bytes -= _entry_bytes(*self._answers.popitem(last=False))


def _entry_bytes(question: str, answer: bytes) -> int:
    return len(question) + len(answer) + ENTRY_BYTES
