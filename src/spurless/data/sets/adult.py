"""Adult (census income, 1994): does a person earn more than 50,000 dollars a year?

Input     13 columns: age, workclass, education, education-num, marital-status, occupation, relationship, race, sex,
          capital-gain, capital-loss, hours-per-week, native-country. Numbers are standardised, the others one-hot.
Label     income: <=50K or >50K (24.08 % of the training samples). Another field can be the target (data.target).
Bias      sex by default: 30.6 % of the men and 10.9 % of the women of the training file are in the upper class.
          Also race (five values), age (bands), marital-status.
Splits    the official two files: 32,561 samples, of which a seeded, stratified tenth is for validation, and 16,281 test
          samples. No official validation split exists.
Missing   "?" in workclass (1,836 and 963 samples), occupation (1,843 and 966) and native-country (583 and 274): a value
          of its own, not dropped, so that all samples are used.
Citation  R. Kohavi. Scaling up the accuracy of naive-Bayes classifiers: a decision-tree hybrid. KDD 1996.
          Donors: R. Kohavi and B. Becker; UCI Machine Learning Repository, dataset 2.
Licence   CC BY 4.0 (as listed by UCI).
Choices   `fnlwgt` is left out: it says how many people the census takes a sample for, and is no property of the person.
          The protected attribute stays among the inputs (data.drop_attribute=false), as a shortcut that the model can
          see; dropping it leaves its proxies (relationship says Husband or Wife). adult.test has a first line that is
          no sample, and a full stop after each label; both are taken away.
Files     adult.data and adult.test, in `tabular/adult` or `adult` under the data root.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import numpy as np

from spurless.core.data import Bundle
from spurless.core.settings import Range
from spurless.data.coding import Coding
from spurless.data.ingest import table as tables
from spurless.data.ingest.labels import Field, codes
from spurless.data.ingest.splits import stratified

if TYPE_CHECKING:
    from pandas import DataFrame

SOURCE = "https://archive.ics.uci.edu/dataset/2/adult"
# fmt: off
COLUMNS = [
    "age", "workclass", "fnlwgt", "education", "education-num", "marital-status", "occupation", "relationship",
    "race", "sex", "capital-gain", "capital-loss", "hours-per-week", "native-country", "income"
]
# fmt: on
Choice = Literal["income", "sex", "race", "age", "marital-status"]


def load(
    root: Path | None = None,
    *,
    coding: Coding | None = None,
    target: Annotated[Choice, "what is predicted"] = "income",
    attribute: Annotated[tuple[Choice, ...], "the bias attribute, or several"] = ("sex",),
    age_bands: Annotated[tuple[float, ...], "ages at which a new band begins (age as target or attribute)"] = (25, 60),
    drop_attribute: tables.Drop = False,
    val_share: Annotated[float, "share of the training file that is kept for validation", Range(0, 0.9)] = 0.1,
    rho: tables.Rho = None,
    seed: Annotated[int, "of the validation split, and of the samples that rho leaves out", Range(0)] = 0,
) -> Bundle:
    """Adult, read from adult.data and adult.test."""
    settings = {k: v for k, v in locals().items() if k not in ("root", "coding")}
    import pandas as pd

    folder = tables.find("adult", ["adult.data", "adult.test"], root, SOURCE)
    official = [read(folder / "adult.data"), read(folder / "adult.test")]
    n_train, n_test = map(len, official)
    frame = pd.concat(official, ignore_index=True)
    ages, age_order = tables.bands(frame["age"], age_bands)
    # `relationship` says Husband or Wife, but it is a proxy of sex and marital status like others, not their spelling.
    named = ("income", "sex", "race", "marital-status")
    fields = {n: Field(n, frame[n].to_numpy(dtype=object), (n,)) for n in named}
    fields["age"] = Field("age", ages, ("age",), age_order)
    label, attributes = tables.choose(fields, target, attribute)

    split = np.full(len(frame), "test", dtype=object)
    groups = np.stack([codes(f.values)[0][:n_train] for f in (label, *attributes)], axis=1)
    split[:n_train] = stratified(groups, (1 - val_share, val_share, 0), seed)
    names = [f"adult.data row {i + 1}" for i in range(n_train)] + [f"adult.test row {i + 1}" for i in range(n_test)]
    return tables.to_bundle(
        "adult",
        tables.Samples(frame.drop(columns="fnlwgt"), label, attributes, split, names),
        tables.Inputs(drop_attribute=drop_attribute),
        coding=coding,
        rho=rho,
        seed=seed,
        notes=tables.expect_rows("adult.data", n_train, 32_561) + tables.expect_rows("adult.test", n_test, 16_281),
        settings=settings,
    )


def read(path: Path) -> DataFrame:
    """One of the two files as it is, less the line that is no sample and the full stops after the labels."""
    import pandas as pd

    frame = pd.read_csv(path, names=COLUMNS, skipinitialspace=True, na_values="?", keep_default_na=False, comment="|")
    frame["income"] = frame["income"].str.rstrip(".")
    return frame
