"""Posts one file for some seconds.

    python tests/bench/upload_client.py PORT PATH TYPE FILE SECONDS

A program of its own for `tests.bench.large_uploads`, which imports next to nothing: it starts at
once, and its interpreter lock is not that of the process which takes the times.
"""

import http.client
import json
import sys
import time
from pathlib import Path


def main(port: int, path: str, media_type: str, body: bytes, seconds: float) -> None:
    """Print, as JSON, the seconds of each request, and status and answer of the last one."""
    times: list[float] = []
    begun = time.monotonic()
    while not times or time.monotonic() - begun < seconds:
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=300)
        started = time.monotonic()
        connection.request("POST", path, body, {"Content-Type": media_type})
        answer = connection.getresponse()
        said = answer.read()
        times.append(time.monotonic() - started)
        connection.close()
    print(json.dumps({"times": times, "status": answer.status, "said": said[:300].decode()}))


if __name__ == "__main__":
    port, path, media_type, file, seconds = sys.argv[1:]
    main(int(port), path, media_type, Path(file).read_bytes(), float(seconds))
