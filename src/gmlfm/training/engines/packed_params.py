"""A model's dense parameters in one line, where kernels can read and update them all at once."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import nn


class DenseLine:
    """The parameters, laid in one line together with what torch's optimiser keeps of them.

    The parameters and the optimiser's state become views of the line, so both sides always see the same numbers.
    first, second: (P,), or one number where the optimiser keeps no such thing; updates: (1,).
    """

    def __init__(self, parameters: Sequence[nn.Parameter], optimiser: torch.optim.Optimizer) -> None:
        self._parameters, self._optimiser = parameters, optimiser
        names = {torch.optim.Adam: ("exp_avg", "exp_avg_sq"), torch.optim.Adagrad: ("sum",)}.get(type(optimiser), ())
        size, device = sum(one.numel() for one in parameters), parameters[0].device
        self.values = torch.empty(size, device=device)
        kept = [torch.zeros(size, device=device) for _ in names]
        updates, at = 0.0, 0
        for one in parameters:
            part = slice(at, at + one.numel())
            self.values[part] = one.detach().ravel()
            one.data = self.values[part].view(one.shape)
            state = optimiser.state[one]
            for name, line in zip(names, kept, strict=True):
                if name in state:
                    line[part] = state[name].ravel()
                state[name] = line[part].view(one.shape)
            if names:
                updates = float(state.get("step", 0.0))
                state["step"] = torch.tensor(updates)
            at = part.stop
        self.updates = torch.tensor([updates], device=device)
        self.first = kept[0] if kept else torch.zeros(1, device=device)
        self.second = kept[1] if len(kept) > 1 else self.first

    def tell_optimiser(self) -> None:
        """Bring the optimiser's own count of updates up to date with the line's."""
        updates = float(self.updates)
        for one in self._parameters:
            if "step" in self._optimiser.state[one]:
                self._optimiser.state[one]["step"].fill_(updates)
