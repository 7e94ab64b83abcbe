"""Print the values that the ranks have for the environment variables that are named, as JSON."""

import json
import os
import sys

from mpi4py import MPI

values = {name: os.environ.get(name) for name in sys.argv[1:]}
gathered = MPI.COMM_WORLD.gather(values)
if gathered is not None:
    print(json.dumps(gathered), flush=True)
