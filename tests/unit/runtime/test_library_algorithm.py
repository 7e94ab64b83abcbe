"""What a call does to the library's variables while its algorithm is forced."""

from functools import partial
from unittest.mock import Mock

import numpy as np
import pytest
from mpi4py import MPI

from tuner.core.collective import Collective
from tuner.runtime.library_algorithm import LibraryCall


def test_variables_are_put_back_where_writing_them_was_interrupted() -> None:
    before, after = Mock(side_effect=KeyboardInterrupt), Mock()
    forced = LibraryCall(MPI.COMM_SELF, (before, after), Collective.ALLREDUCE)
    arguments = np.ones(1), np.zeros(1)
    for call in (partial(forced.call, *arguments), forced.prepare(*arguments)):
        with pytest.raises(KeyboardInterrupt):
            call()
        after.assert_called_once_with()
        after.reset_mock()
