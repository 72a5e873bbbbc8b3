"""SpurlessClassifier is a classifier of scikit-learn, and trains as `fit` does."""

import pickle

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import parametrize_with_checks

import spurless
from spurless import SpurlessClassifier, UserError

QUICK = {"iterations": 100, "batch_size": 32, "lr": 0.02}
SHORT = {"epochs": 3, "batch_size": 32, "lr": 0.02}


# Named exceptions, each with its reason. (scikit-learn itself skips the array API where SCIPY_ARRAY_API is not set.)
NOT_PASSED = {
    "check_methods_subset_invariance": "asks for 1e-7; networks compute in float32, by batch size to about 1e-6",
}


@parametrize_with_checks(
    [SpurlessClassifier(recipe=QUICK, device="cpu")], expected_failed_checks=lambda estimator: NOT_PASSED
)
def test_scikit_learns_own_checks(estimator, check):
    check(estimator)


def test_one_sample_alone_is_predicted_as_among_others():
    X, y, _ = biased()
    model = SpurlessClassifier("erm", recipe=QUICK, random_state=0, device="cpu").fit(X, y)
    alone = np.concatenate([model.predict_proba(row[None]) for row in X[:50]])
    np.testing.assert_allclose(alone, model.predict_proba(X)[:50], atol=1e-5)


def biased(n=400, agree=0.9):
    """(X, y, a): the second column is easier than the first, and misleads where the attribute contradicts the label."""
    rng = np.random.default_rng(0)
    y = rng.integers(0, 2, n)
    a = np.where(rng.random(n) < agree, y, 1 - y)
    return np.stack([y + 0.3 * rng.normal(size=n), 100 * a + 10 * rng.normal(size=n)], axis=1), y, a


def test_it_is_the_training_of_fit_on_standardised_columns():
    X, y, _ = biased()
    model = SpurlessClassifier("erm", recipe=SHORT, random_state=np.random.RandomState(5), device="cpu").fit(X, y)
    seed = int(np.random.RandomState(5).randint(2**31 - 1))
    data = spurless.Bundle.from_arrays(((X - X.mean(0)) / X.std(0)), y, val=0.0, test=0.0)
    same = spurless.fit("erm", data, recipe=SHORT, seed=seed, device="cpu")
    own = same.predict_proba((X - X.mean(0)) / X.std(0))
    np.testing.assert_allclose(model.predict_proba(X), own, atol=1e-5)
    assert own[:, 0].std() > 0.02, "the two agree on something that was learnt"


def test_attributes_reach_the_method_and_change_what_it_relies_on():
    X, y, a = biased()
    test_x, test_y, test_a = biased(agree=0.5)
    worst = {}
    for method, attributes in (("erm", None), ("group_dro", a)):
        model = SpurlessClassifier(method, recipe=QUICK, random_state=0, device="cpu").fit(X, y, attributes=attributes)
        right = model.predict(test_x) == test_y
        worst[method] = right[test_a != test_y].mean()
    assert worst["erm"] + 0.02 < worst["group_dro"]
    with pytest.raises(UserError, match="needs bias labels"):
        SpurlessClassifier("group_dro", recipe=SHORT, device="cpu").fit(X, y)


def test_attributes_are_cut_with_the_samples_in_a_cross_validation():
    X, y, a = biased(120)
    model = SpurlessClassifier("group_dro", recipe=SHORT, random_state=0, device="cpu")
    scores = cross_val_score(model, X, y, cv=3, params={"attributes": a})
    assert scores.shape == (3,) and np.isfinite(scores).all()


def test_a_search_in_a_pipeline_picks_among_methods_and_settings():
    X, y, _ = biased(160)
    words = np.array(["land", "water"], object)[y]
    steps = make_pipeline(StandardScaler(), SpurlessClassifier("erm", random_state=0, device="cpu"))
    grid = {"spurlessclassifier__recipe": [SHORT, {**SHORT, "epochs": 0.0}]}
    search = GridSearchCV(steps, grid, cv=2).fit(X, words)
    assert search.best_params_ == {"spurlessclassifier__recipe": SHORT}
    assert list(search.classes_) == ["land", "water"]
    assert search.score(X, words) == (search.predict(X) == words).mean() > 0.8


def test_parameters_are_kept_as_given_and_a_clone_is_not_fitted():
    model = SpurlessClassifier({"name": "jtt", "lambda_up": 5}, recipe=SHORT, validation=0.2)
    assert model.get_params()["method"] == {"name": "jtt", "lambda_up": 5}
    assert clone(model.set_params(method="pgd")).get_params() == model.get_params()
    assert not hasattr(clone(model), "classes_")


def test_a_pickle_predicts_the_same_and_holds_no_training_samples():
    X, y, _ = biased(4000)
    model = SpurlessClassifier("erm", net={"name": "mlp", "widths": [8]}, recipe={"epochs": 1}, device="cpu").fit(X, y)
    kept = pickle.dumps(model)
    np.testing.assert_array_equal(pickle.loads(kept).predict_proba(X), model.predict_proba(X))
    assert len(kept) < X.nbytes


def test_images_and_a_validation_share_are_taken():
    rng = np.random.default_rng(0)
    y = np.arange(80) % 2
    images = (rng.integers(0, 100, (80, 8, 8, 3)) + 120 * y[:, None, None, None]).astype(np.uint8)
    model = SpurlessClassifier("erm", net="mlp", recipe={"epochs": 3}, validation=0.25, device="cpu")
    model.fit(images, y)
    assert model.result_.scored_on == "val" and model.result_.n == 20
    assert model.predict_proba(images).shape == (80, 2)
    assert model.n_features_in_ == 8


def test_settings_that_do_not_exist_are_named():
    X, y, _ = biased(40)
    with pytest.raises(UserError, match="did you mean 'recipe.epochs'"):
        SpurlessClassifier("erm", recipe={"epoch": 3}, device="cpu").fit(X, y)
