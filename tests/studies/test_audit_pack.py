"""The pack of the second final set: opened, every base draws from the same images as the whole data."""

import numpy as np
import torch

from studies.audit import bases, pack


def test_a_pack_holds_what_the_bases_draw_from(tmp_path, monkeypatch):
    generator = torch.Generator().manual_seed(0)

    def fake(shape):
        whole = {
            train: (
                torch.randint(0, 256, (60, *shape), generator=generator, dtype=torch.uint8),
                torch.arange(60) * 7 % 10,
            )
            for train in (True, False)
        }
        return lambda train=True: whole[train]

    read = {name: fake((3, 32, 32) if name == "cifar" else (28, 28)) for name in pack.READ}
    monkeypatch.setattr(pack, "READ", read)
    monkeypatch.setattr(pack, "LATE", (4, 2))
    monkeypatch.setattr(bases, "LATE", (4, 2))
    pack.make(tmp_path / "pack")
    pack.opened(tmp_path / "pack", tmp_path / "root")
    monkeypatch.setenv("SPURLESS_DATA", str(tmp_path / "root"))
    bases.source.cache_clear()
    for name, train in pack.PARTS:
        x, y = bases.source(name if name == "kmnist" else f"late_{name}" if train else f"late_{name}_test")
        whole, label = read[name](train=train)
        rows = torch.arange(60) if name == "kmnist" else bases.late(label, 4 if train else 2)
        wanted = whole[rows] if name == "cifar" else whole[rows][:, None]
        assert torch.equal(x, wanted) and np.array_equal(y.numpy(), label[rows].numpy()), name
    bases.source.cache_clear()
