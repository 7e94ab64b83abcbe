"""Count the errors planted in our NCCL tuner plugin that the tests find: `python -m
tests.bench.nccl_mutants`.

One error after the other is planted in plugin.c in a copy of the checkout, in which the unit tests
of the plugin run. Prints who found it; fails where one is not found. Numbers as words: these alone.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
SOURCE = "tuner/formats/nccl/plugin.c"
TESTS = (
    "tests/unit/formats/test_nccl_plugin.py",
    "tests/unit/formats/test_nccl_install.py",
    "tests/unit/formats/test_nccl_config.py",
)
PATIENCE = 300.0  # seconds for the tests of one error
MUTANTS = (  # what is there, and what is put in its place
    ("rule[half].first <= nbytes", "rule[half].first < nbytes"),
    ("rule->first <= nbytes && nbytes", "nbytes"),
    ("nbytes <= rule->last ?", "nbytes < rule->last ?"),
    ("nbytes <= rule->last ?", "nbytes <= rule->last + 1 ?"),
    ("if (left == 0) return NULL;", ""),
    ("while (left > 1)", "while (left > 2)"),
    ("rule->algorithm * protocols + rule->protocol", "rule->algorithm * protocols + LL"),
    ("rule->algorithm * protocols", "rule->algorithm * PROTOCOLS + 0 * protocols + 1"),
    ("rule->protocol >= protocols", "false"),
    ("rule->algorithm >= algorithms", "rule->algorithm > algorithms"),
    ("if (!(*cost >= 0.0f)) return NCCL_SUCCESS;", ""),
    ("*cost = 0.0f;", "*cost = -1.0f;"),
    ("if (rule->channels > 0) *channels", "*channels"),
    ("if (rule->channels > 0) *channels = rule->channels;", ""),
    ('"allgather", "reducescatter"', '"reducescatter", "allgather"'),
    ("collective >= COLLECTIVES", "collective > COLLECTIVES"),
    ("own == NULL || collective < 0 ||", "own == NULL ||"),
    ("enum { LL, LL128, SIMPLE,", "enum { LL128, LL, SIMPLE,"),
    ("row->nodes != own->nodes || ", ""),
    ("|| row->ranks != own->ranks", ""),
    ("row->rule.first <= rules->rule[rules->count - 1].last", "false"),
    ("if (row->rule.first > row->rule.last)", "if (false)"),
    ("return OFFERED[row->collective] >> algorithm & 1 &&", "return"),
    ("(any_protocol || row->rule.protocol == SIMPLE)", "true"),
    ("algorithm != COLLNET_DIRECT && ", ""),
    ("(algorithm != NVLS || own->nodes == 1)", "true"),
    ("&& rule->protocol != LL128", ""),
    ("return fnv1a(text->at, text->end) == *digest;", "return true;"),
    ("return seen == *rows;", "return true;"),
    ("if (total > (most - figure) / base) return false;", ""),
    ("> length;", ">= length;"),
    ("return text->at > begin;", "return true;"),
    ("|| number == 0", ""),
    ("rules->room ? 2 * rules->room : 16", "16"),
    ("found.st_size <= LARGEST_FILE", "true"),
    (" | O_NONBLOCK", ""),
    ("getenv(names[i]) != NULL", "getenv(names[0]) != NULL"),
    ("domains->fewest_ranks != domains->most_ranks", "false"),
    ("return !atomic_flag_test_and_set(&said);", "return true;"),
    ("for (int i = 0; i < COLLECTIVES; i++) free(own->rules[i].rule);", ""),
    ("    free(content);\n", ""),
    ("own->blind = blind;", ""),
    ('"TREE_LL+^TREE_LL128"', '"TREE_LL"'),
    ('"NVLSTREE_SIMPLE"', '"NVLS_TREE_SIMPLE"'),
    ("*channels = rule->channels;\n    return SELECTIONS", "return SELECTIONS"),
    ("known ? known->own : NULL, collective", "newest ? newest->own : NULL, collective"),
    ("atomic_store_explicit(&known->handle, NULL, memory_order_release);", ""),
    ("    tuner_nccl_forget(handle);\n", ""),
    ("level > LOG_WARN && (debug", "(debug"),
)


def failing(place: Path) -> str:
    """The file whose tests fail in a checkout, "" where none does."""
    environment = {**os.environ, "PYTHONPATH": str(place)}
    for tests in TESTS:
        command = [sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", tests]
        try:
            done = subprocess.run(
                command,
                cwd=place,
                env=environment,
                capture_output=True,
                timeout=PATIENCE,
                check=False,
            )
        except subprocess.TimeoutExpired:
            return f"{tests} (without an end)"
        if done.returncode:
            return tests
    return ""


def main() -> int:
    """Plant every error; return 1 where one is not found."""
    text = (ROOT / SOURCE).read_text()
    chosen = [*map(int, sys.argv[1:])] or range(1, len(MUTANTS) + 1)
    found = 0
    with tempfile.TemporaryDirectory(prefix="tuner-mutants-") as scratch:
        place = Path(scratch, "checkout")
        ignored = shutil.ignore_patterns(".venv*", ".git", "build", "tuner-out", "__pycache__")
        shutil.copytree(ROOT, place, ignore=ignored)
        if who := failing(place):
            raise SystemExit(f"{who}: fails without any error planted")
        for number in chosen:
            before, after = MUTANTS[number - 1]
            if text.count(before) != 1:
                raise SystemExit(f"{before!r} is there {text.count(before)} times")
            (place / SOURCE).write_text(text.replace(before, after))
            who = failing(place)
            found += bool(who)
            print(f"{number:3} {before!r} -> {after!r}: {who or 'NOT FOUND'}", flush=True)
    print(f"{found} of {len(chosen)} found")
    return 0 if found == len(chosen) else 1


if __name__ == "__main__":
    sys.exit(main())
