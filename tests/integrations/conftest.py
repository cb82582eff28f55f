"""One thread for PyTorch: tests run beside each other."""

import torch

torch.set_num_threads(1)
