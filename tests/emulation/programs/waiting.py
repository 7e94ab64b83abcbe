"""Rank 1 waits for a message of rank 0 and counts how often it went to sleep meanwhile."""

import json
import resource

from mpi4py import MPI

from tests.support.waiting import be_slow

WAIT = 0.5  # s
world = MPI.COMM_WORLD
world.Barrier()
if world.rank == 0:
    be_slow(WAIT)
    world.send(None, 1)
    print(json.dumps(world.recv(source=1)))
else:
    begin = resource.getrusage(resource.RUSAGE_SELF).ru_nvcsw
    world.recv(source=0)
    sleeps = resource.getrusage(resource.RUSAGE_SELF).ru_nvcsw - begin
    world.send({"sleeps": sleeps}, 0)
