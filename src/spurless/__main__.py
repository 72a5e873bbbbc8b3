"""`python -m spurless`, and `torchrun ... -m spurless`, whose processes then train together."""

import os

from spurless.cli.main import main

if __name__ == "__main__":
    if "TORCHELASTIC_RUN_ID" in os.environ:
        from spurless.core.parallel import joined

        with joined():
            main()
    else:
        main()
