"""Options that choose an MPI library, its interpreter and its thread level."""

from __future__ import annotations

import argparse

from tuner.base.thread_levels import THREAD_LEVELS, THREAD_SINGLE
from tuner.cli.options.argument_types import file_option
from tuner.launch import inspect_interpreter
from tuner.launch.interpreters import find_interpreter
from tuner.mpi_libraries import LIBRARY_MODULES

LIBRARIES = tuple(LIBRARY_MODULES)


def add_library_options(parser: argparse.ArgumentParser) -> None:
    """Declare the options that choose a library and its interpreter."""
    parser.add_argument(
        "--library", choices=LIBRARIES, help="MPI library (default: the one that --python has)"
    )
    file_option(
        parser,
        "--python",
        "interpreter of the environment that holds this library (default: this one, or with"
        " --library mpich .venv-mpich/bin/python where it exists)",
        metavar="PYTHON",
    )


def add_thread_level_option(parser: argparse.ArgumentParser) -> None:
    """Declare the option that says how MPI is initialised."""
    parser.add_argument(
        "--thread-level",
        choices=THREAD_LEVELS,
        default=THREAD_SINGLE,
        metavar="LEVEL",
        help="thread level at which the programs initialise MPI: single (default), which MPI_Init"
        " gives, funneled, serialized, or multiple, which mpi4py asks for",
    )


def library_of(options: argparse.Namespace) -> str:
    """Return the library of the options, else what their interpreter has; raise ProbeError."""
    return options.library or inspect_interpreter(find_interpreter("", options.python)).base
