"""tuner serve & tuner publish table.json; python service.py http://127.0.0.1:8765"""

import json
import sys
from urllib.parse import urlencode
from urllib.request import urlopen

call = {"collective": "allreduce", "nodes": 1, "ppn": 2, "nbytes": 65536}
query = urlencode({"library": "openmpi", **call})
with urlopen(f"{sys.argv[1]}/v1/select?{query}") as answer:
    print(json.load(answer)["algorithm"])
