"""Limit PyTorch to one thread, because tests run in parallel."""

import torch

torch.set_num_threads(1)
