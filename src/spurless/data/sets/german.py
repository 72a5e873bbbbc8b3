"""German credit (Statlog, 1973 to 1975): is a loan a good or a bad risk?

Input     20 columns: 7 numbers (duration, amount, instalment rate, years of residence, age, credits, dependants) and
          13 coded ones (account, history, purpose, savings, employment, personal status, and so on), one-hot.
Label     credit: good (700 samples) or bad (300 samples).
Bias      sex by default (690 men, 310 women), read from personal_status: A92 and A95 are women. Also age: 25 or under
          (190 samples) against over 25 (810 samples), as in Kamiran and Calders (2009), and foreign (963 foreign
          workers).
Splits    none official: a seeded split, stratified by class and attribute, 60/20/20 by default. 1,000 samples.
Citation  H. Hofmann. Statlog (German Credit Data). UCI Machine Learning Repository, dataset 144, 1994.
Licence   CC BY 4.0 (as listed by UCI).
Choices   Good is class 0 and bad class 1. Dropping an attribute drops the column that it is read from, so for sex the
          marital status goes with it. The code table that comes with the file is known to be wrong in places
          (U. Grömping. South German credit data: correcting a widely used dataset. 2019): by the corrected one, A92
          holds non-single women and single men together, so that "sex" is what the field's benchmarks call sex, and
          no more. Nothing is missing; "unknown" codes such as A65 are values.
Files     german.data, in `tabular/german` or `german` under the data root.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import numpy as np

from spurless.core.data import Bundle
from spurless.core.settings import Range
from spurless.data.coding import Coding
from spurless.data.ingest import table as tables
from spurless.data.ingest.labels import Field

if TYPE_CHECKING:
    from pandas import DataFrame

SOURCE = "https://archive.ics.uci.edu/dataset/144/statlog+german+credit+data"
# fmt: off
COLUMNS = [
    "status", "duration", "history", "purpose", "amount", "savings", "employment", "installment_rate",
    "personal_status", "debtors", "residence", "property", "age", "other_plans", "housing", "credits", "job",
    "dependants", "telephone", "foreign_worker", "credit"
]
# fmt: on
Choice = Literal["credit", "sex", "age", "foreign"]


def load(
    root: Path | None = None,
    *,
    coding: Coding | None = None,
    target: Annotated[Choice, "what is predicted"] = "credit",
    attribute: Annotated[tuple[Choice, ...], "the bias attribute, or several"] = ("sex",),
    age_bands: Annotated[tuple[float, ...], "ages at which a new band begins (age as target or attribute)"] = (26,),
    drop_attribute: tables.Drop = False,
    fractions: tables.Fractions = (0.6, 0.2, 0.2),
    rho: tables.Rho = None,
    seed: Annotated[int, "of the split, and of the samples that rho leaves out", Range(0)] = 0,
) -> Bundle:
    """German credit, read from german.data."""
    settings = {k: v for k, v in locals().items() if k not in ("root", "coding")}
    frame = read(tables.find("german", ["german.data"], root, SOURCE) / "german.data")
    women = frame["personal_status"].isin(["A92", "A95"])
    ages, age_order = tables.bands(frame["age"], age_bands)
    fields = {
        "credit": Field("credit", np.where(frame["credit"] == 1, "good", "bad"), ("credit",), ("good", "bad")),
        "sex": Field("sex", np.where(women, "female", "male"), ("personal_status",)),
        "age": Field("age", ages, ("age",), age_order),
        "foreign": Field("foreign", np.where(frame["foreign_worker"] == "A201", "yes", "no"), ("foreign_worker",)),
    }
    label, attributes = tables.choose(fields, target, attribute)
    split = tables.drawn(label, attributes, fractions, seed)
    samples = tables.Samples(frame, label, attributes, split, [f"row {i + 1}" for i in range(len(frame))])
    how, notes = tables.Inputs(drop_attribute=drop_attribute), tables.expect_rows("german.data", len(frame), 1_000)
    return tables.to_bundle("german", samples, how, coding=coding, rho=rho, seed=seed, notes=notes, settings=settings)


def read(path: Path) -> DataFrame:
    """The file as it is: 21 columns between spaces, no header."""
    import pandas as pd

    return pd.read_csv(path, sep=r"\s+", names=COLUMNS, keep_default_na=False)
