"""The explanation of a failed launch in one sentence, from the output of launcher and ranks."""

from __future__ import annotations

import re
from dataclasses import dataclass


@dataclass(frozen=True)
class CompletedRun:
    """The exit code and the output of a launch."""

    returncode: int
    stdout: str
    stderr: str


FAILURE_MESSAGES = (  # pattern in the output of the launchers, and our message
    (
        "attempt to run as root",
        "mpirun refuses to run as root: run as another user or set OMPI_ALLOW_RUN_AS_ROOT=1 and"
        " OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1",
    ),
    (
        r"lost communication with a remote daemon.*?Remote daemon: \S+ on node (\S+)"
        r"|Node failure on (\S+)|node (\S+) failed\b"
        r"|connection to proxy \d+ (?:at|on) host (\S+) (?:failed|lost)",
        "host {detail} was lost: look after it, or leave it out of --hosts",
    ),
    (
        r"daemon failed to report back.*?Remote host: (\S+)",
        "host {detail} was lost or cannot be reached: look after it, or leave it out of --hosts",
    ),
    (
        r"ssh: connect to host (\S+) port \d+: (?:Connection (?:refused|timed out)|No route to"
        r" host|Network is unreachable)|ssh: Could not resolve hostname ([^\s:]+)"
        r"|Connection to (\S+) port \d+ timed out",
        "host {detail} cannot be reached ({text}): check that `ssh {detail} true` works without a"
        " password, or leave it out of --hosts",
    ),
    (
        r"(?:Permission denied(?= \(|, please)|Host key verification failed"
        r"|Connection (?:refused|timed out)|No route to host)",
        "a host cannot be reached ({text}): check that `ssh HOST true` works without a password",
    ),
    (
        r"(/[^\s'\"\u2019:]+)['\"\u2019]?: [Pp]ermission denied",
        "permission denied for {detail}: the user who starts the ranks must be able to use it on"
        " every host",
    ),
    ("not enough slots", "too few slots for {ranks} ranks on {place}: ask for fewer ranks"),
    (r"srun: error: (?!.*?: task )([^:]+: .*?)(?= srun:|$)", "srun refused: {detail}"),
    (
        "No module named '?mpi4py|cannot load MPI library",
        "{python} lacks mpi4py or its MPI library: run `{python} -m pip install mpi4py {library}`",
    ),
    (
        "unsupported PMI version",
        "the MPI library of {python} is not {library}: give the interpreter of an environment"
        " with mpi4py and {library}",
    ),
    (
        r"Timeout \(\d+:\d\d:\d\d",  # printed by faulthandler in a rank that watches itself
        "the ranks stopped answering one another: {advice} and run it again",
    ),
    (r"\bcollectives: (.+?)(?= -{5}| MPI_ABORT| Abort\(| Primary job|$)", "{detail}"),
    (
        r"exited on signal (\d+)|EXIT CODE: (9|11|6|7|135|137|139)\b",
        "a rank died (signal or exit code {detail}), often for want of memory: try fewer ranks or"
        " smaller sizes",
    ),
)
SSH_FAILURE_EXIT_CODE = 255  # of ssh, and of MPICH's mpiexec when ssh has failed
DEADLOCK_ADVICE = {  # when ranks no longer answer, by whether they are on several hosts
    False: "end other programs on this machine",
    True: "look whether every host of the list still runs and is reached",
}


def explain_failure(
    run: CompletedRun, *, executable: str, python: str, library: str, ranks: int, multi_host: bool
) -> str:
    """Return one sentence on why a launch failed and what to do.

    executable  the launcher
    python      interpreter of the ranks
    library     pip package of the MPI library
    multi_host  whether the ranks ran on other hosts
    """
    text = run.stderr + run.stdout
    own = re.findall(r"tuner\.base\.errors\.\w+: (.+)$", text, re.MULTILINE)
    if own:
        return str(own[-1])
    flat = " ".join(text.split())  # launchers break lines inside sentences
    for symptom, message in FAILURE_MESSAGES:
        match = re.search(symptom, flat)
        if match:
            return message.format(
                ranks=ranks,
                python=python,
                library=library,
                advice=DEADLOCK_ADVICE[multi_host],
                detail=next(filter(None, match.groups()), ""),
                text=match[0][:200],
                place="these hosts" if multi_host else "this machine",
            )
    raised = re.findall(r"(?:\w+\.)*\w+(?:Error|Exception): .*$", text, re.MULTILINE)
    if raised:
        return f"a rank failed: {raised[-1]}"
    aborted = re.search(r"^Abort\(.*$", text, re.MULTILINE)
    if run.returncode == SSH_FAILURE_EXIT_CODE and multi_host and not aborted:
        return (
            f"{executable} could not start ranks on every host and gave no reason: check that `ssh"
            " HOST true` works without a password for each of them"
        )
    if run.returncode == 0:
        return f"{executable} ended before the ranks were done, it gave no reason"
    said = f": {aborted[0]}" if aborted else ", it gave no reason"
    return f"{executable} ended with exit code {run.returncode}{said}"
