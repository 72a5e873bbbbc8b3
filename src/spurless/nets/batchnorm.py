"""BatchNorm that leaves room on a GPU for other runs."""

from __future__ import annotations

import torch
from torch import Tensor, nn


class BatchNorm2d(nn.BatchNorm2d):
    """nn.BatchNorm2d by torch's own kernels instead of cuDNN's, which take the whole GPU even for a few channels.

    For networks with few channels, whose images are in channels_last: a run alone is as fast, and eight side by side
    are a quarter faster (SimConv-1 on an H200). With hundreds of channels, or in the plain layout, it would be slower.
    """

    def forward(self, input: Tensor) -> Tensor:
        last = input.dim() == 4 and input.is_contiguous(memory_format=torch.channels_last)
        if not (input.is_cuda and last) or torch.compiler.is_compiling():
            return super().forward(input)
        before = torch.backends.cudnn.enabled
        torch.backends.cudnn.enabled = False
        try:
            return super().forward(input)
        finally:
            torch.backends.cudnn.enabled = before

    def plain(self) -> nn.BatchNorm2d:
        """Torch's own class with the same tensors."""
        made = nn.BatchNorm2d(self.num_features, self.eps, self.momentum, self.affine, self.track_running_stats)
        made._parameters, made._buffers = self._parameters, self._buffers
        return made.train(self.training)
