"""What is said but once: a program may make thousands of communicators of the same kind."""

_TOLD: set[str] = set()


def warn_once(line: str) -> None:
    """A warning in the log of `tuner`, the first time."""
    if line not in _TOLD:
        import logging  # not among what `import tuner.runtime` may take time for

        _TOLD.add(line)
        logging.getLogger("tuner").warning("%s", line)
