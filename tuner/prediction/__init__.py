"""Predicted times of collective calls on a machine.

`call_predictor` says how long a call takes with some algorithm, by NCCL's own model or by a
simulation; `call_candidates` says which algorithms and parameters are worth a prediction.
"""
