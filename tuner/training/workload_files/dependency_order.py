"""Order of numbered nodes after those that they depend on."""

from __future__ import annotations

import heapq
from collections import defaultdict
from collections.abc import Iterable


def dependency_order(numbers: Iterable[int], edges: Iterable[tuple[int, int]]) -> list[int]:
    """Return the numbers so that each follows those it depends on, else the smallest first.

    Numbers in or behind a cycle are left out.

    edges       pairs of a number and one that depends on it
    """
    users, waits = defaultdict[int, list[int]](list), dict.fromkeys(numbers, 0)
    for source, user in edges:
        users[source].append(user)
        waits[user] += 1
    ready = sorted(number for number, count in waits.items() if not count)
    ordered = []
    while ready:
        ordered.append(heapq.heappop(ready))
        for user in users[ordered[-1]]:
            waits[user] -= 1
            if not waits[user]:
                heapq.heappush(ready, user)
    return ordered
