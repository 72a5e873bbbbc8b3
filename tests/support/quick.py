"""Every method with settings so small that it trains in a second."""

from spurless.registry import make_method

QUICK = {  # settings that only make a test shorter
    "ga": {"mining_epochs": 2},
    "jtt": {"lambda_up": 2},
    "dcwp": {"mining_iterations": 8, "mask_iterations": 8, "finetune_iterations": 8},
    "mrm": {"mask_iterations": 8},
}


def quick(name):
    return make_method({"name": name} | QUICK.get(name, {}))
