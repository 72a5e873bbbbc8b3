"""Ask one peer about a folder of images. Run by the peer's own Python; nothing of this project is imported.

    PYTHON studies/audit/peer_adapters.py cleanlab|deepchecks|shortkit FOLDER

FOLDER holds `labels.json` (`files` and `labels`) and `features.npy`. The last line that is printed is one JSON object:
whether the peer reports anything, the names of what it reports, its seconds without imports, and its version.
"""

import json
import sys
import time
from importlib import metadata
from pathlib import Path

IMAGE_ISSUES = ("dark", "light", "low_information", "odd_aspect_ratio", "odd_size", "grayscale", "blurry")
BATCH = 64
PPS = 0.2  # of deepchecks: the threshold of its documentation
QUICK_START = ["hbac", "probe", "statistical", "geometric", "equalized_odds"]  # of shortkit-ml's page


def cleanlab(folder, files, labels):
    """Datalab's `spurious_correlations`, as it is: scores below its threshold are reported."""
    from cleanlab import Datalab
    from datasets import Dataset, Features, Image, Value

    started = time.monotonic()
    features = Features({"image": Image(), "label": Value("int64")})
    data = Dataset.from_dict({"image": files, "label": labels}, features=features)
    lab = Datalab(data=data, label_name="label", image_key="image", verbosity=0)
    lab.find_issues(issue_types={"image_issue_types": {name: {} for name in IMAGE_ISSUES}, "spurious_correlations": {}})
    found = lab.get_info("spurious_correlations")
    frame, threshold = found["correlations_df"], found["threshold"]
    names = [str(name).removesuffix("_score") for name in frame[frame["score"] < threshold]["property"]]
    return names, time.monotonic() - started, "cleanlab"


def deepchecks(folder, files, labels):
    """The check `PropertyLabelCorrelation`, with the condition that no property's power is 0.2 or more."""
    import numpy as np
    from deepchecks.vision import VisionData
    from deepchecks.vision.checks import PropertyLabelCorrelation
    from PIL import Image

    started = time.monotonic()
    images = [np.asarray(Image.open(file).convert("RGB")) for file in files]

    class Batches:  # which is gone through more than once
        def __len__(self):
            return -(-len(images) // BATCH)

        def __iter__(self):
            for k in range(0, len(images), BATCH):
                yield {"images": images[k : k + BATCH], "labels": labels[k : k + BATCH]}

    names = {c: f"class {c}" for c in set(labels)}  # without names it scores every property 0
    data = VisionData(Batches(), task_type="classification", label_map=names, reshuffle_data=False)
    result = PropertyLabelCorrelation().run(data, with_display=False)
    names = [str(name) for name, power in dict(result.value).items() if power >= PPS]
    return names, time.monotonic() - started, "deepchecks"


def shortkit(folder, files, labels):
    """The methods of its quick start on the features that our audit sees; reported: its level HIGH RISK."""
    import numpy as np
    from shortcut_detect import ShortcutDetector

    started = time.monotonic()
    detector = ShortcutDetector(methods=QUICK_START)
    detector.fit(np.load(folder / "features.npy"), np.array(labels))
    names = ["high risk"] if "HIGH RISK" in detector.summary() else []
    return names, time.monotonic() - started, "shortkit-ml"


def main():
    folder = Path(sys.argv[2])
    told = json.loads((folder / "labels.json").read_text())
    files = [str(folder / name) if not Path(name).is_absolute() else name for name in told["files"]]
    peer = {"cleanlab": cleanlab, "deepchecks": deepchecks, "shortkit": shortkit}[sys.argv[1]]
    names, seconds, package = peer(folder, files, told["labels"])
    answer = {"names": names, "seconds": round(seconds, 1), "version": metadata.version(package)}
    print("\n" + json.dumps(answer))


if __name__ == "__main__":
    main()
