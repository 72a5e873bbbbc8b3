"""A model is given another table, and other images, as it was given its own."""

from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from spurless.auditing import audit
from spurless.compress.loading import data_for, trained
from spurless.core.errors import UserError
from spurless.core.tensor_files import load_tensors, save_tensors
from spurless.registry import load_data
from spurless.train.fit import evaluate, fit


def measurements(path, higher=0.0, column="size", words=("red", "blue"), rows=300):
    """A table in which a size above 5 is class b; `higher`: of all sizes, so that the same rows are another class."""
    rng = np.random.default_rng(0)
    size, word = rng.normal(5, 2, rows) + higher, rng.choice(words, rows)
    lines = [f"{s:.3f},{w},{'ab'[int(s > 5)]}" for s, w in zip(size, word, strict=True)]
    path.write_text(f"{column},colour,label\n" + "\n".join(lines) + "\n")
    return {"name": f"csv:{path}", "attribute": ["colour"]}


def test_a_model_sees_another_table_as_it_saw_its_own(tmp_path, capsys):
    """Learnt anew, the mean of another table would make its middle the border between the classes."""
    own, moved = measurements(tmp_path / "own.csv"), measurements(tmp_path / "moved.csv", higher=1.5)
    run = tmp_path / "run"
    recipe = {"epochs": 40, "lr": 0.01}
    assert fit("erm", load_data(own), recipe=recipe, out=run, progress=False).scores["average"] > 95
    data = data_for(run, moved)
    net, data, _ = trained(run, data)
    assert evaluate(net, data)["average"] > 95
    assert evaluate(net, load_data(moved))["average"] < 90  # coded anew
    with pytest.raises(UserError, match="coded by its own training samples"):
        trained(run, load_data(moved))
    with pytest.raises(UserError, match="reads the column 'size', which is not among the inputs here"):
        data_for(run, measurements(tmp_path / "renamed.csv", column="width"))
    capsys.readouterr()
    data_for(run, measurements(tmp_path / "words.csv", words=("green", "blue")))
    assert "was not trained on, which it does not see: colour" in capsys.readouterr().err
    with pytest.raises(UserError, match="other values of the column 'colour' .blue, red. than are here: green, grey"):
        data_for(run, measurements(tmp_path / "others.csv", words=("green", "grey")))
    assert data_for(run, {"name": own["name"]}).attributes == ("colour",)  # the run's own settings


def test_a_column_that_the_model_reads_is_read_where_it_counts_the_rows(tmp_path):
    """One that was no row number in its own table, such as the years of a shuffled one."""
    rng = np.random.default_rng(0)
    years = {"own": rng.integers(1900, 2000, 60), "other": np.arange(1900, 1960)}
    for name, column in years.items():
        lines = [f"{year},{'ab'[int(year > 1940)]}" for year in column]
        (tmp_path / f"{name}.csv").write_text("year,label\n" + "\n".join(lines) + "\n")
    run = tmp_path / "run"
    fit("erm", load_data(f"csv:{tmp_path / 'own.csv'}"), recipe={"epochs": 1}, out=run, progress=False)
    assert data_for(run, {"name": f"csv:{tmp_path / 'other.csv'}"}).inputs.columns == ("year",)


def test_codes_are_words_in_every_table(tmp_path, capsys):
    """As floats, 1.0 and 2.0, they would be values that the model does not know."""
    names = [measurements(tmp_path / f"{name}.csv", words=("1", "2"))["name"] for name in ("own", "other")]
    run, settings = tmp_path / "run", {"attribute": ["colour"], "categorical": ["colour"]}
    fit("erm", load_data({"name": names[0]} | settings), recipe={"epochs": 1}, out=run, progress=False)
    capsys.readouterr()
    for model in (run, run / "model.safetensors"):
        data = data_for(model, {"name": names[1], "attribute": ["colour"]})
        assert data.inputs.columns == ("size", "colour=1", "colour=2") and data.train.x[:, 1:].sum() == len(data.train)
    assert capsys.readouterr().err == ""


def test_the_data_of_a_run_is_known_under_another_name(tmp_path, monkeypatch):
    """Otherwise other splits would be drawn, and rows scored that the run was trained on."""
    measurements(tmp_path / "own.csv")
    monkeypatch.chdir(tmp_path)
    own = load_data({"name": "csv:own.csv", "attribute": ["colour"], "seed": 5})
    fit("erm", own, recipe={"epochs": 1}, out="run", progress=False)
    for name in ("csv:own.csv", "csv:./own.csv", f"csv:{tmp_path / 'own.csv'}"):
        assert data_for(Path("run"), {"name": name}).settings["seed"] == 5
    measurements(tmp_path / "deeper.csv", higher=1.0)
    (tmp_path / "sub").mkdir()
    (tmp_path / "deeper.csv").rename(tmp_path / "sub" / "own.csv")  # another table of that name
    assert data_for(Path("run"), {"name": "csv:sub/own.csv"}).settings["seed"] == 0


def test_what_an_audit_advises_has_the_settings_of_the_run(tmp_path):
    table = measurements(tmp_path / "own.csv")
    fit("erm", load_data(table | {"seed": 5}), recipe={"epochs": 1}, out=tmp_path / "run", progress=False)
    found = audit(table["name"], model=tmp_path / "run", progress=False, device="cpu")
    commands = [advice["command"] for advice in found["advice"] if advice["command"]]
    assert commands and all("data.seed=5" in c and "data.attribute" in c for c in commands)


def test_a_model_of_before_codings_were_kept_is_scored_with_a_word(tmp_path, capsys):
    table, run = measurements(tmp_path / "own.csv"), tmp_path / "run"
    fit("erm", load_data(table), recipe={"epochs": 1}, out=run, progress=False)
    tensors, facts = load_tensors(run / "model.safetensors")
    save_tensors(run / "model.safetensors", tensors, {k: v for k, v in facts.items() if k != "coding"})
    trained(run, data_for(run, table))
    assert "does not say how its table was coded" in capsys.readouterr().err


def test_images_come_at_the_size_of_the_run(tmp_path):
    for kind, light in (("dark", 60), ("light", 180)):
        (tmp_path / "photos" / kind).mkdir(parents=True)
        for i in range(20):
            Image.new("RGB", (40, 40), (light + i,) * 3).save(tmp_path / "photos" / kind / f"{i}.png")
    photos, run = f"folder:{tmp_path / 'photos'}", tmp_path / "run"
    fit(
        "erm",
        load_data({"name": photos, "size": 12, "seed": 3}),
        net="conv3",
        recipe={"epochs": 1},
        out=run,
        progress=False,
    )
    again = data_for(run, {"name": photos})
    assert again.shape == (3, 12, 12) and again.settings["seed"] == 3
    (tmp_path / "photos").rename(tmp_path / "others")
    assert data_for(run, {"name": f"folder:{tmp_path / 'others'}"}).shape == (3, 12, 12)
    assert data_for(run, {"name": f"folder:{tmp_path / 'others'}", "size": 16}).shape == (3, 16, 16)
