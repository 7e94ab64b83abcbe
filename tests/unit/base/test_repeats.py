"""Messages that repeat themselves are logged once a minute."""

import logging

import pytest

from tuner.base.repeats import INTERVAL_S, RepeatFilter


def test_a_message_is_logged_when_it_is_new_and_again_after_a_while() -> None:
    shown = RepeatFilter()

    def logged(second: float, message: str, *arguments: object) -> bool:
        record = logging.LogRecord("a", logging.WARNING, "", 0, message, arguments, None)
        record.created = second
        return shown.filter(record)

    assert logged(0.0, "jobs wait: %s", "the disk is full")
    assert not logged(0.3, "jobs wait: %s", "the disk is full")
    assert logged(0.6, "jobs wait: %s", "the server does not answer")
    assert logged(0.9, "jobs wait: %s", "the disk is full")
    assert not logged(0.9 + INTERVAL_S / 2, "jobs wait: %s", "the disk is full")
    assert logged(0.9 + INTERVAL_S, "jobs wait: %s", "the disk is full")


@pytest.mark.parametrize("name", ["tuner.api.service", "tuner.jobs.runner"])
def test_the_service_repeats_nothing(name: str) -> None:
    pytest.importorskip(name)
    assert any(isinstance(one, RepeatFilter) for one in logging.getLogger(name).filters)
