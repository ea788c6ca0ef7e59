"""Where a run of steps reads and writes on a device, computed at once for all steps.

The occurrences of rows in each step (users' attributes first, then items') are sorted by row. Equal rows make one slot; a
slot's occurrences lie side by side, cut into pieces of at most PIECE, so that a row which every instance has is summed by many
programs. All of this is torch on whole arrays and works on any device.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

PIECE = 64


@dataclass(frozen=True)
class StepOccurrences:
    """For S steps of N occurrences each.

    slots: (S, N), the slot of each occurrence within its step; positions: (S, N), its place among the sorted ones of the step.
    rows: the slots' rows, one step after another; first_slot: (S + 1,), where each step's begin.
    piece_starts, piece_ends: (P,), positions within the step; first_piece: (S + 1,), where each step's pieces begin.
    sources: one more than slots, the first piece of each slot.
    most_slots, most_pieces: of any step.
    """

    slots: Tensor
    positions: Tensor
    rows: Tensor
    first_slot: Tensor
    piece_starts: Tensor
    piece_ends: Tensor
    first_piece: Tensor
    sources: Tensor
    most_slots: int
    most_pieces: int

    @property
    def in_pieces(self) -> bool:
        """Whether any slot has more than one."""
        return self.most_pieces > self.most_slots


def sort_occurrences(occurrences: Tensor, n_rows: int) -> StepOccurrences:
    """occurrences: (S, N) rows."""
    n_steps, n = occurrences.shape
    device = occurrences.device
    kind = torch.int32 if n_steps * n_rows < 2**31 else torch.int64
    keys = occurrences.to(kind) + torch.arange(n_steps, dtype=kind, device=device).unsqueeze(1) * n_rows
    ordered, order = torch.sort(keys.flatten(), stable=True)
    starts = torch.ones_like(ordered, dtype=torch.bool)
    starts[1:] = ordered[1:] != ordered[:-1]
    slot_numbers = torch.cumsum(starts, 0, dtype=torch.int32) - 1  # through all steps
    begins = torch.nonzero(starts).squeeze(1)
    distinct = ordered[begins]
    edges = torch.arange(n_steps + 1, device=device) * n
    first_slot = torch.cat([slot_numbers, slot_numbers[-1:] + 1])[edges]
    positions = torch.empty(n_steps * n, dtype=torch.int32, device=device)
    places = torch.arange(n, dtype=torch.int32, device=device).repeat(n_steps)
    positions[order] = places
    slots = torch.empty_like(positions)
    slots[order] = slot_numbers - first_slot[:-1].repeat_interleave(n)
    lengths = torch.diff(begins, append=edges[-1:])
    rows = (distinct % n_rows).to(torch.int32)
    lengths = torch.where(rows == 0, 0, lengths)  # padding has no gradients and is not summed
    n_pieces = ((lengths + PIECE - 1) // PIECE).clamp_min(1)
    sources = torch.cat([n_pieces.new_zeros(1), torch.cumsum(n_pieces, 0)])
    first_piece = sources[first_slot.long()]
    slot_of_piece = torch.repeat_interleave(torch.arange(len(rows), device=device), n_pieces)
    piece_of_slot = torch.arange(len(slot_of_piece), device=device) - sources[slot_of_piece]
    first_position = (begins % n)[slot_of_piece]
    piece_starts = first_position + piece_of_slot * PIECE
    piece_ends = torch.minimum(piece_starts + PIECE, first_position + lengths[slot_of_piece])
    return StepOccurrences(
        slots.view(n_steps, n),
        positions.view(n_steps, n),
        rows,
        first_slot.to(torch.int32),
        piece_starts.to(torch.int32),
        piece_ends.to(torch.int32),
        first_piece.to(torch.int32),
        sources.to(torch.int32),
        int(torch.diff(first_slot).max()),
        int(torch.diff(first_piece).max()),
    )
