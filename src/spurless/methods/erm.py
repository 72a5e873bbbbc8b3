"""Plain training."""

from collections.abc import Generator
from dataclasses import dataclass

from spurless.core.method import PLAIN, Method, Run, Stage
from spurless.nets import Net


@dataclass(frozen=True)
class ERM(Method):
    """Empirical risk minimisation: the baseline that every paper compares with.  L = mean CE(f(x), y)"""

    def stages(self, run: Run) -> Generator[Stage, None, Net]:
        net = run.net()
        yield Stage("erm", lambda b: run.ce(net(b.x), b.y), run.optimizer(net), model=net, select=True, shared=PLAIN)
        return net
