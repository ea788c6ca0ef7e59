"""A model's dense parameters packed into one tensor, where kernels can read and update them all at once."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import nn


class PackedParams:
    """The parameters one after another, and likewise the state that torch's optimiser has of them.

    The parameters and the optimiser's state become views of the packed tensors, so both sides always see the same numbers.
    first_moment, second_moment: (P,), or one number where the optimiser has no such state; updates: (1,).
    """

    def __init__(self, parameters: Sequence[nn.Parameter], optimiser: torch.optim.Optimizer) -> None:
        self._parameters, self._optimiser = parameters, optimiser
        names = {torch.optim.Adam: ("exp_avg", "exp_avg_sq"), torch.optim.Adagrad: ("sum",)}.get(type(optimiser), ())
        size, device = sum(parameter.numel() for parameter in parameters), parameters[0].device
        self.values = torch.empty(size, device=device)
        moments = [torch.zeros(size, device=device) for _ in names]
        updates, start = 0.0, 0
        for parameter in parameters:
            span = slice(start, start + parameter.numel())
            self.values[span] = parameter.detach().ravel()
            parameter.data = self.values[span].view(parameter.shape)
            state = optimiser.state[parameter]
            for name, moment in zip(names, moments, strict=True):
                if name in state:
                    moment[span] = state[name].ravel()
                state[name] = moment[span].view(parameter.shape)
            if names:
                updates = float(state.get("step", 0.0))
                state["step"] = torch.tensor(updates)
            start = span.stop
        self.updates = torch.tensor([updates], device=device)
        self.first_moment = moments[0] if moments else torch.zeros(1, device=device)
        self.second_moment = moments[1] if len(moments) > 1 else self.first_moment

    def sync_optimiser(self) -> None:
        """Bring the optimiser's count of updates up to date with that of the kernels."""
        updates = float(self.updates)
        for parameter in self._parameters:
            if "step" in self._optimiser.state[parameter]:
                self._optimiser.state[parameter]["step"].fill_(updates)
