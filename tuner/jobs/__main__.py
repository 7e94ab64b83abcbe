"""The entry point of a job process, `python -m tuner.jobs`, which only the runner starts.

Processes that a study or a tuning job starts import the main module of the process that started
them, unless it is the `__main__` of a package, as here: they simulate calls and do not need the
database.
"""

import sys

from tuner.jobs.worker import main

if __name__ == "__main__":
    sys.exit(main())
