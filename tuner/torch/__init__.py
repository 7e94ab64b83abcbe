"""A backend of `torch.distributed` whose collectives follow a tuning table.

import tuner.torch
torch.distributed.init_process_group("tuner")
"""

from tuner.torch.comm_hook import HookState, allreduce_hook
from tuner.torch.options import Options
from tuner.torch.process_group import register
from tuner.torch.ranks import start_under_launcher

__all__ = ["HookState", "Options", "allreduce_hook"]


register()
start_under_launcher()
