"""`python -m tuner`, for where `tuner` is not on the path."""

import sys

from tuner.cli.main import main

if __name__ == "__main__":
    sys.exit(main())
