"""Trials of a benchmark that take a second."""

from spurless.bench import Trial, run_trials

TOY = {"name": "toy", "n": 100}
QUICK = {"epochs": 1, "batch_size": 50}


class Quiet:
    """A watcher that remembers what it was told."""

    def __init__(self):
        self.events = []

    def __enter__(self):
        return self

    def __exit__(self, *error): ...

    def __call__(self, event):
        self.events.append(event)


def trial(seed=0, method="erm", rho=0.1, **recipe):
    return Trial(TOY | {"rho": rho}, {"name": method}, None, QUICK | recipe, seed)


def run(trials, out, **more):
    return run_trials(trials, out, device="cpu", workers=1, **{"watch": Quiet()} | more)
