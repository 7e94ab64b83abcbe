"""What a call does to the library's variables while its algorithm is forced."""

from unittest.mock import Mock

import numpy as np
import pytest
from mpi4py import MPI

from tuner.collective import Collective
from tuner.runtime.forced import Forced


def test_variables_are_put_back_where_writing_them_was_interrupted() -> None:
    before, after = Mock(side_effect=KeyboardInterrupt), Mock()
    forcing = Mock()
    forcing.communicator.return_value = MPI.COMM_SELF
    forcing.around.return_value = before, after
    with pytest.raises(KeyboardInterrupt):
        Forced(forcing, {}, Collective.ALLREDUCE)(np.ones(1), np.zeros(1))
    after.assert_called_once_with()
