"""Print a script that makes a shell complete verbs, options, choices, files and names."""

from __future__ import annotations

import argparse
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from tuner import algorithms, mpi_libraries
from tuner.cli.main import COMMANDS, build_parser
from tuner.core.collective import Collective
from tuner.core.path_classes import PLACEMENTS
from tuner.db import SCOPES
from tuner.machines import PRESETS
from tuner.machines.yaml_machines import PRESET_PREFIX
from tuner.probe.probe_spec import PARTS
from tuner.select.baselines import BASELINES

SHELLS = ("bash", "zsh", "fish")
DIRECTORY_METAVARS = ("DIRECTORY", "DIR")
EXAMPLES = """examples:
  mkdir -p ~/.local/share/bash-completion/completions
  tuner completion bash > ~/.local/share/bash-completion/completions/tuner
  mkdir -p ~/.zfunc && tuner completion zsh > ~/.zfunc/_tuner
  mkdir -p ~/.config/fish/completions
  tuner completion fish > ~/.config/fish/completions/tuner.fish

bash needs its package bash-completion for this file; without it add the script to ~/.bashrc. zsh
needs these lines in ~/.zshrc:
  fpath=(~/.zfunc $fpath)
  autoload -Uz compinit && compinit

Print the script again after an upgrade: it holds the options of this version."""

# bash breaks words at colons: put `preset:NAME` together again, and take the prefix off the answer.
BASH_COLON_WORKAROUND = r"""
_tuner_words() {
  local -a words=() ; local number word cword=$COMP_CWORD
  for number in "${!COMP_WORDS[@]}"; do
    word=${COMP_WORDS[number]}
    if [[ ${#words[@]} -gt 1 && ( $word == :* || ${words[-1]} == *: ) ]]; then
      words[-1]+=$word
      (( number <= COMP_CWORD )) && (( cword -= 1 ))
    else
      words+=("$word")
    fi
  done
  local -a COMP_WORDS=("${words[@]}") ; local COMP_CWORD=$cword
  _shtab_tuner "$@"
  word=${words[cword]}
  [[ ${COMPREPLY[*]} == *:* ]] && compopt +o filenames
  COMPREPLY=("${COMPREPLY[@]#"${word%"${word##*:}"}"}")
}
complete -o bashdefault -F _tuner_words tuner
"""


def arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    parser.add_argument("shell", choices=SHELLS, help="shell that reads the script")
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> None:
    """Print the script."""
    import shtab

    parser = build_parser(list(COMMANDS))
    for action in _actions(parser):
        _describe(action, shtab.FILE, shtab.DIRECTORY)
    print(shtab.complete(parser, options.shell), end="")
    print(BASH_COLON_WORKAROUND if options.shell == "bash" else "")


def _actions(parser: argparse.ArgumentParser) -> Iterator[argparse.Action]:
    """Yield the arguments of all commands and of their actions."""
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            for own in action.choices.values():
                yield from _actions(own)
        else:
            yield action


def _describe(action: argparse.Action, file: Any, folder: Any) -> None:
    """Set what completes an argument, in the attributes that shtab reads."""
    described: Any = action
    if action.choices:
        return
    if action.dest == "collective":
        action.choices = list(map(str, Collective))
    elif action.dest in COMMA_LISTS:
        described.complete = _comma_list(action.dest, COMMA_LISTS[action.dest])
    elif action.dest in ("topology", "machine"):
        described.complete = _machines()
    elif action.metavar in DIRECTORY_METAVARS:
        described.complete = folder
    elif action.type is Path or action.metavar == "FILE":
        described.complete = file


def _algorithms() -> list[str]:
    """Return the names of tuner's own and of the libraries' algorithms."""
    own = [
        name
        for one in Collective
        for name in algorithms.algorithm_names(one, algorithms.REQUIREMENTS)
    ]
    theirs = [
        name
        for library in mpi_libraries.LIBRARY_MODULES
        for names in mpi_libraries.library_module(library).ALGORITHMS.values()
        for name in names
    ]
    return sorted({*own, *theirs})


COMMA_LISTS: Mapping[str, Iterable[str]] = {  # by the option that takes a comma list of them
    **dict.fromkeys(
        ("algorithm", "excluded_algorithms", "tuner_algorithms", "exclude_algorithms"),
        _algorithms(),
    ),
    "collectives": Collective,
    "measure": PARTS,
    "placements": PLACEMENTS,
    "baselines": BASELINES,
    "scope": SCOPES,
    "libraries": mpi_libraries.LIBRARY_MODULES,
}


def _comma_list(title: str, names: Iterable[str]) -> dict[str, Any]:
    """Return how each shell completes the last name of a comma list."""
    listed = " ".join(map(str, names))
    function = f"_tuner_{title}"
    bash = f"""
{function}() {{
  local before=""
  [[ $1 == *,* ]] && before="${{1%,*}},"
  compgen -P "$before" -W "{listed}" -- "${{1##*,}}"
}}"""
    return {
        "bash": function,
        "zsh": f"_sequence compadd - {listed}",
        "fish": f"(__fish_complete_list , 'string split , {listed.replace(' ', ',')}')",
        "preamble": {"bash": bash},
    }


def _machines() -> dict[str, Any]:
    """Return how each shell completes a topology: a file, or the name of a preset."""
    names = " ".join(f"{PRESET_PREFIX}{name}" for name in PRESETS)
    bash = f"""
_tuner_file_or_machine() {{
  compgen -f -- "$1"
  compgen -W "{names}" -- "$1"
}}"""
    zsh = f"""
_tuner_machines() {{
  _files
  compadd -- {names}
}}"""
    return {
        "bash": "_tuner_file_or_machine",
        "zsh": "_tuner_machines",
        "fish": f"(__fish_complete_path (commandline -ct)) {names}",
        "preamble": {"bash": bash, "zsh": zsh},
    }
