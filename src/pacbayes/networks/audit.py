"""What of a network is drawn, and how: a table to read before a certificate is believed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import nn

from pacbayes.networks.binding import Binding

OUTPUT, WHOLE, FIXED, OUTSIDE = "the output layer", "as a whole", "fixed", "TRAINABLE, OUTSIDE THE KL"


@dataclass(frozen=True)
class Row:
    """One tensor of the model."""

    name: str
    shape: tuple[int, ...]
    drawn: str
    """The kind of layer whose own rule draws it (``"Conv2d"``), ``"the output layer"``, ``"as a whole"`` (one tensor
    for the batch, or with a draw for each example the examples pass one by one), or ``"fixed"``."""
    kl: float | None
    """Nats; None for what is not drawn."""

    @property
    def size(self) -> int:
        return torch.Size(self.shape).numel()


@dataclass(frozen=True)
class Audit:
    """All tensors of a model: those drawn first, in the order of the flat vectors, then those that are fixed."""

    rows: tuple[Row, ...]

    @property
    def kl(self) -> float:
        """KL(Q‖P), in nats."""
        return sum(row.kl or 0.0 for row in self.rows)

    @property
    def outside(self) -> tuple[str, ...]:
        """What could be trained without a price in the KL: nothing, unless the model inside was changed."""
        return tuple(row.name for row in self.rows if row.drawn == OUTSIDE)

    def __str__(self) -> str:
        table = [("parameter", "shape", "numbers", "drawn", "KL", "share")]
        for row in self.rows:
            kl = "" if row.kl is None else f"{row.kl:.4f}"
            share = "" if row.kl is None or not self.kl else f"{100 * row.kl / self.kl:.1f} %"
            table.append((row.name, "x".join(map(str, row.shape)) or "1", f"{row.size}", row.drawn, kl, share))
        widths = [max(len(line[i]) for line in table) for i in range(6)]
        left = (0, 1, 3)
        lines = [
            "  ".join(
                f"{cell:<{w}}" if i in left else f"{cell:>{w}}"
                for i, (cell, w) in enumerate(zip(line, widths, strict=True))
            ).rstrip()
            for line in table
        ]
        drawn, fixed = (sum(row.size for row in self.rows if (row.kl is None) == f) for f in (False, True))
        outside = ", ".join(self.outside) or "nothing"
        lines.append(
            f"{drawn} numbers drawn, {fixed} fixed, KL {self.kl:.4f} nats; trainable outside the KL: {outside}"
        )
        return "\n".join(lines)


def audit(
    model: nn.Module, slots: Mapping[str, torch.Size], divergences: Mapping[str, float], binding: Binding
) -> Audit:
    ways: dict[int, str] = {}
    for rule in binding.rules:
        way = OUTPUT if rule.layer is binding.output_layer else type(rule.original).__name__
        ways |= {slot: way for _, slot in rule.slots()}
    rows = [
        Row(name, tuple(shape), ways.get(slot, WHOLE), divergences[name])
        for slot, (name, shape) in enumerate(slots.items())
    ]
    for name, tensor in [*model.named_parameters(), *model.named_buffers()]:
        rows.append(Row(name, tuple(tensor.shape), OUTSIDE if tensor.requires_grad else FIXED, None))
    return Audit(tuple(rows))
