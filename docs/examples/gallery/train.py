"""TUNER_TABLE=table.json mpirun -n 2 python train.py"""

import torch

import tuner.torch

torch.distributed.init_process_group("tuner", pg_options=tuner.torch.Options(verbose=True))
torch.manual_seed(torch.distributed.get_rank())
model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(1000, 10))
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
for _ in range(10):
    optimizer.zero_grad()
    model(torch.randn(32, 1000)).square().mean().backward()  # averages the gradients
    optimizer.step()
torch.distributed.destroy_process_group()
