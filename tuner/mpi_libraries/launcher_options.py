"""The options of launchers: which of them set variables of the ranks, and how many values each has.

They are needed to find the program in a command that a user has typed. Sources: the help of Open
MPI 4.1.4 and 5.0, MPICH 4.0 and 5.0, Intel MPI 2021.18 and Slurm 22.05.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class GivenOption:
    """An option in the words of a command.

    index       index of its word
    name        its name without dashes
    values      its values; one if it is joined to the name by `=`
    """

    index: int
    name: str
    values: tuple[str, ...] = ()


@dataclass(frozen=True)
class LauncherOptions:
    """The options of a launcher, by their names without dashes; most have one value.

    environment     options that set a variable of the ranks; the first is for all ranks of a
                    context of the command, and where it has two values, these are name and value
    flags           options without a value
    pairs           options with two values, a name and its value
    variable_list   setting with the variables of the ranks, separated by semicolons, which excludes
                    the options of `environment`; "" for none
    inherited_since first major version whose options of `environment` hold for later contexts, too
    short_letters   whether one dash and a letter begin a word that may contain the value
    """

    environment: tuple[str, ...]
    flags: frozenset[str]
    pairs: frozenset[str] = frozenset()
    variable_list: str = ""
    inherited_since: int = 0
    short_letters: bool = False

    def read(self, words: Sequence[str], start: int, stop: int) -> tuple[list[GivenOption], int]:
        """Return the options from `start` on, and the index of the program; `stop` without one."""
        found, at, name = list[GivenOption](), start, "-"
        while at < stop and words[at].startswith("-") and name:  # `--` ends the options
            name, joined, value = words[at].lstrip("-").partition("=")
            count = 0 if joined else self._count(words, at, name)
            values = (value,) if joined else tuple(words[at + 1 : min(at + 1 + count, stop)])
            found.append(GivenOption(at, name, values))
            at = min(at + 1 + count, stop)
        return found, at

    def assignment_words(self, variables: Mapping[str, str]) -> list[str]:
        """Return the words that set variables of all ranks of a context."""
        option = self.environment[0]
        if option in self.pairs:
            return [word for pair in variables.items() for word in (f"-{option}", *pair)]
        return [word for n, v in variables.items() for word in (f"-{option}", f"{n}={v}")]

    def _count(self, words: Sequence[str], at: int, name: str) -> int:
        """Return the number of words that are values of an option."""
        if not name or name in self.flags:
            return 0
        if self.short_letters and not words[at].startswith("--") and len(name) > 1:
            return 0
        return 2 if name in self.pairs and "=" not in "".join(words[at + 1 : at + 2]) else 1


def _names(text: str) -> frozenset[str]:
    return frozenset(text.split())


OPENMPI_OPTIONS = LauncherOptions(
    environment=("x",),
    flags=_names(
        """V allow-run-as-root bind-to-core bind-to-socket bycore bynode byslot continuous d
        daemonize debug debug-daemons debug-daemons-file debug-devel disable-recovery
        display-allocation display-devel-allocation display-devel-map display-diffable-map
        display-map display-topo do-not-launch do-not-resolve dvm enable-instant-on-support
        enable-recovery fwd-mpirun-port get-stack-traces h index-argv-by-rank
        leave-session-attached merge-stderr-to-stdout no-app-prefix nolocal nooversubscribe noprefix
        novm output-proctable oversubscribe pernode preload-binary q quiet report-bindings
        report-child-jobs-separately report-state-on-timeout s set-cwd-to-session-dir set-sid
        show-progress stop-in-init stop-on-exec tag-output timestamp-output tv use-hwthread-cpus
        use-regexp v verbose version xml"""
    ),
    pairs=_names("gmca gomca gpmixmca gprtemca mca omca pmixmca prtemca"),
    variable_list="mca_base_env_list",
    inherited_since=5,
)
HYDRA_OPTIONS = LauncherOptions(
    environment=("genv", "env"),
    flags=_names(
        """aps check_mpi disable-auto-cleanup disable-hostname-propagation disable-x enable-x
        envall envnone gdb genvall genvnone hybrid-hosts info l mps nolocal pmi-port prepend-rank
        prepend-timestamp print-all-exitcodes print-rank-map profile prot silent-abort
        skip-launch-node trace v verbose version"""
    ),
    pairs=_names("env genv"),
)
SRUN_OPTIONS = LauncherOptions(
    environment=("export",),
    flags=_names(
        """E H K O Q V X Z contiguous disable-status exact exclusive h help hold immediate k
        kill-on-bad-exit l label multi-prog nice no-allocate no-kill overcommit overlap
        oversubscribe preserve-env propagate pty quiet quit-on-interrupt reboot resv-ports s
        send-libs spread-job u unbuffered usage use-min-nodes v verbose version"""
    ),
    short_letters=True,
)
