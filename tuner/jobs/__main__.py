"""Where the process of a job begins: `python -m tuner.jobs`, started by the runner alone.

Processes that a study or a table starts load the program of the one that started them, unless it is
that of a package, as here: they price calls, and need nothing of the database.
"""

import sys

from tuner.jobs.worker import main

if __name__ == "__main__":
    sys.exit(main())
