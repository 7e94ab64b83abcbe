"""Many random requests for every operation: `python -m tests.bench.fuzz [EXAMPLES]`.

Ends with schemathesis's report, and the request, at the first response that is a server error or
not as the OpenAPI document says.
"""

from __future__ import annotations

import sys
import tempfile
import time

from tests.service.fuzzing import fill, fuzzed
from tests.service.serving import serving

EXAMPLES = 500  # sound and faulty ones, each, of every operation

if __name__ == "__main__":
    examples = int(sys.argv[1]) if len(sys.argv) > 1 else EXAMPLES
    begun = time.monotonic()
    with tempfile.TemporaryDirectory() as place:
        url = f"sqlite:///{place}/tuner.sqlite"
        with serving(url, "--no-jobs") as program:
            fill(program.client)
            tried = [operation.label for operation in fuzzed(program.client, examples)]
            metrics = program.client.get("/metrics").text
    answered = sum(
        float(line.split()[-1])
        for line in metrics.splitlines()
        if line.startswith("tuner_requests_total")
    )
    print(
        f"{len(tried)} operations, {answered:,.0f} requests, {time.monotonic() - begun:.0f} s:"
        " no server error, nothing undocumented"
    )
