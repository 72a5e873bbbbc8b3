"""COMPAS (Broward County, Florida, 2013 and 2014): is a defendant charged again within two years?

Input     eight columns known when the score was made: sex, age, race, juv_fel_count, juv_misd_count, juv_other_count,
          priors_count, c_charge_degree (felony or misdemeanour).
Label     two_year_recid: no or yes (45.51 % of the filtered samples). data.target=score predicts instead what the
          COMPAS tool said (Low, or Medium and High), to study the tool rather than the people.
Bias      race by default: 52.3 % of the African-American and 39.1 % of the Caucasian defendants are charged again.
          Also sex and age (the file's three age_cat bands).
Splits    none official: a seeded split, stratified by class and attribute, 60/20/20 by default.
          7,214 samples in the file; 6,172 after ProPublica's filters; 5,278 of two races (data.races=two).
Citation  J. Larson, S. Mattu, L. Kirchner, J. Angwin. How we analyzed the COMPAS recidivism algorithm. ProPublica 2016.
Licence   ProPublica's repository carries no licence. The file names real people; nothing of them reaches a result.
Choices   ProPublica's filters (data.filtered): charge within 30 days of the score (days_b_screening_arrest), a
          recidivism flag that was found (is_recid != -1), no ordinary traffic offence (c_charge_degree != O), a score
          (score_text != N/A).
          Left out because they are known only afterwards, and would give the label away: is_recid, is_violent_recid,
          violent_recid, every r_ and vr_ column, start, end, event, in_custody, out_custody, c_jail_out.
          Left out because they are the tool's answer: decile_score, score_text and their v_ twins.
          Left out because they identify a person or a day: names, ids, case numbers, dates, days from one to another.
          Left out because it has 389 free texts for 6,172 samples: c_charge_desc. age_cat repeats age.
          The protected attribute stays among the inputs (data.drop_attribute=false).
Files     compas-scores-two-years.csv, in `tabular/compas` or `compas` under the data root.
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

SOURCE = "https://github.com/propublica/compas-analysis"
FILE = "compas-scores-two-years.csv"
# fmt: off
INPUTS = [
    "sex", "age", "race", "juv_fel_count", "juv_misd_count", "juv_other_count", "priors_count", "c_charge_degree"
]
# fmt: on


def load(
    root: Path | None = None,
    *,
    coding: Coding | None = None,
    target: Annotated[Literal["two_year_recid", "score", "race", "sex", "age"], "what is predicted"] = "two_year_recid",
    attribute: Annotated[tuple[Literal["race", "sex", "age"], ...], "the bias attribute, or several"] = ("race",),
    races: Annotated[Literal["all", "two"], "two: only African-American and Caucasian defendants"] = "all",
    filtered: Annotated[bool, "leave out the samples that ProPublica leaves out"] = True,
    drop_attribute: tables.Drop = False,
    fractions: tables.Fractions = (0.6, 0.2, 0.2),
    rho: tables.Rho = None,
    seed: Annotated[int, "of the split, and of the samples that rho leaves out", Range(0)] = 0,
) -> Bundle:
    """COMPAS, read from ProPublica's two-year file."""
    settings = {k: v for k, v in locals().items() if k not in ("root", "coding")}
    frame = read(tables.find("compas", [FILE], root, SOURCE) / FILE)
    notes = tables.expect_rows(FILE, len(frame), 7_214)
    if filtered:
        frame = frame[usual_rows(frame)]
    if races == "two":
        frame = frame[frame["race"].isin(["African-American", "Caucasian"])]
    fields = {
        "two_year_recid": Field("two_year_recid", np.where(frame["two_year_recid"] == 1, "yes", "no"), ()),
        "score": Field("score", np.where(frame["score_text"] == "Low", "low", "medium or high"), ()),
        "race": Field("race", frame["race"].to_numpy(dtype=object), ("race",)),
        "sex": Field("sex", frame["sex"].to_numpy(dtype=object), ("sex",)),
        "age": Field(
            "age", frame["age_cat"].to_numpy(dtype=object), ("age",), ("Less than 25", "25 - 45", "Greater than 45")
        ),
    }
    label, attributes = tables.choose(fields, target, attribute)
    split = tables.drawn(label, attributes, fractions, seed)
    samples = tables.Samples(frame[INPUTS], label, attributes, split, [f"row {i + 1}" for i in frame.index])
    how = tables.Inputs(drop_attribute=drop_attribute)
    return tables.to_bundle("compas", samples, how, coding=coding, rho=rho, seed=seed, notes=notes, settings=settings)


def read(path: Path) -> DataFrame:
    """The file as it is. Two of its columns stand in it twice; pandas calls the second ones `.1`."""
    import pandas as pd

    return pd.read_csv(path, keep_default_na=False, na_values=[""])


def usual_rows(frame: DataFrame) -> np.ndarray:
    """(n,) bool: the samples of ProPublica's analysis."""
    days = frame["days_b_screening_arrest"]
    return np.asarray(
        (days >= -30)
        & (days <= 30)
        & (frame["is_recid"] != -1)
        & (frame["c_charge_degree"] != "O")
        & (frame["score_text"] != "N/A")
    )
