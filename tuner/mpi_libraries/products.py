"""MPI libraries by their version strings, and the library that each is built on.

Version strings of libraries that cannot be run here are taken from published job logs and the tests
of MPI.jl: Cray MPICH 8.1.28 and 8.1.33, MVAPICH2 2.3.5, Spectrum MPI 10.3.1.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from tuner.base.errors import InputError, shortened_repr

OPENMPI, MPICH, INTELMPI = "openmpi", "mpich", "intelmpi"


@dataclass(frozen=True)
class Product:
    """One MPI library as it is distributed.

    name                first word of `openmpi 5.0.11`, the name in tables
    title               the name in sentences
    base                the library whose algorithms, variables and launcher it has
    version_pattern     pattern of `MPI_Get_library_version`; the group is the version
    """

    name: str
    title: str
    base: str
    version_pattern: str


@dataclass(frozen=True)
class ProductVersion:
    """A product and its version, without spaces."""

    product: Product
    version: str

    @property
    def major_version(self) -> str:
        """The part of the version before the first point."""
        return self.version.partition(".")[0]

    @property
    def library(self) -> str:
        """The name that tables have for it, such as `openmpi 5.0.11`."""
        return f"{self.product.name} {self.version}"

    def __str__(self) -> str:
        return f"{self.product.title} {self.version}"


# In the order in which they are tried: the string of a derived library may name its base, too.
PRODUCTS = (
    Product(
        "intelmpi", "Intel MPI", INTELMPI, r"Intel\(R\) MPI Library (\d+(?:\.\d+)*(?: Update \d+)?)"
    ),
    Product("craympich", "Cray MPICH", MPICH, r"CRAY MPICH version (\d[\w.]*)"),
    Product("mvapichplus", "MVAPICH-Plus", MPICH, r"MVAPICH[- ]?Plus Version\s*:\s*(\S+)"),
    Product("mvapich2", "MVAPICH2", MPICH, r"MVAPICH2\S* Version\s*:\s*(\S+)"),
    Product("mvapich", "MVAPICH", MPICH, r"MVAPICH Version\s*:\s*(\S+)"),
    Product("mpich", "MPICH", MPICH, r"MPICH2? Version\s*:\s*(\S+)"),
    Product(
        "spectrummpi",
        "IBM Spectrum MPI",
        OPENMPI,
        r"IBM Spectrum MPI, ident: (?:IBM Spectrum MPI )?v?(\d[\w.]*)",
    ),
    Product(
        "spectrummpi", "IBM Spectrum MPI", OPENMPI, r"Open MPI v(\S+?), package: IBM Spectrum MPI"
    ),
    Product("openmpi", "Open MPI", OPENMPI, r"Open MPI v(\d[^\s,]*)"),
)
TITLES = {product.name: product.title for product in PRODUCTS}
_OTHER_TITLES = {"nccl": "NCCL", "rccl": "RCCL", "ucc": "UCC"}  # of libraries without MPI
_BASES = {product.name: product.base for product in PRODUCTS}


def release_of(library: str) -> tuple[int, ...]:
    """Return the numbers of a release such as `openmpi 4.1.4`; () without any."""
    version = library.partition(" ")[2]
    return tuple(int(part) for part in re.findall(r"\d+", version)[:3])


def has_since(release: tuple[int, ...], firsts: Sequence[tuple[int, ...]]) -> bool:
    """Return whether a release is one from which on, in its series, something holds.

    firsts      the first such release of each series, ascending; later series all have it
    """
    same = (first for first in firsts if first[:1] == release[:1])
    return any(release >= first for first in (*same, *firsts[-1:]))


def identify(said: str) -> ProductVersion:
    """Return the library that `MPI_Get_library_version` describes; raises InputError for others."""
    for product in PRODUCTS:
        match = re.search(product.version_pattern, said)
        if match:
            return ProductVersion(product, match[1].replace(" Update ", "."))
    known = ", ".join(dict.fromkeys(TITLES.values()))
    raise InputError(f"unknown MPI library {shortened_repr(said.strip()[:80])}: use one of {known}")


def base_of(library: str) -> str:
    """Return the library that a table's library is built on: `mpich` for `craympich 8.1.29`.

    An unknown library is its own base.
    """
    name = library.partition(" ")[0]
    return _BASES.get(name, name)


def title_of(library: str) -> str:
    """Return the name for people of `openmpi` or `openmpi 5.0.11`."""
    name, _, version = library.partition(" ")
    return f"{(TITLES | _OTHER_TITLES).get(name, name)} {version}".rstrip()
