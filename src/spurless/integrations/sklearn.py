"""Every method as a scikit-learn classifier."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.utils import check_random_state
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_is_fitted, validate_data

from spurless.core.data import Bundle, Table
from spurless.core.errors import DataError
from spurless.core.method import Method
from spurless.core.recipe import Recipe
from spurless.data.arrays import from_arrays
from spurless.train.fit import fit
from spurless.train.networks import NetSpec
from spurless.train.result import Result


class SpurlessClassifier(ClassifierMixin, BaseEstimator):
    """A classifier that is trained by a method of spurless, for scikit-learn's pipelines and searches.

    Columns of a table are standardised by their training mean and standard deviation; images, (n, h, w, c) or
    (n, c, h, w) as uint8 or floats from 0 to 1, are read as by `Bundle.from_arrays`.

    Args:
        method: as in `fit`: a name, `{"name": "jtt", "lambda_up": 20}`, or a Method.
        net: the network, else `mlp` for columns and `resnet18` for images.
        recipe: how to optimise: a name, a table of settings, or a Recipe.
        validation: the share of the samples that is held out for validation, drawn by class and attribute; 0: none.
        random_state: what all random numbers derive from; None: a new one for each fit.
        device: `"cpu"`, `"cuda"`; else a GPU if there is one.
        progress: whether a bar is shown.

    After `fit` there are `classes_`, `n_features_in_` and `result_`, the Result of the training.

    >>> X = np.concatenate([np.zeros((40, 2)), np.ones((40, 2))])
    >>> model = SpurlessClassifier("erm", recipe={"epochs": 20, "batch_size": 16}, random_state=0, device="cpu")
    >>> model.fit(X, ["cat"] * 40 + ["dog"] * 40).predict([[0.0, 0.0], [1.0, 1.0]]).tolist()
    ['cat', 'dog']
    """

    def __init__(
        self,
        method: Method | str | Mapping[str, Any] = "crossfit",
        *,
        net: NetSpec | None = None,
        recipe: Recipe | str | Mapping[str, Any] | None = None,
        validation: float = 0.0,
        random_state: int | np.random.RandomState | None = None,
        device: str | None = None,
        progress: bool = False,
    ):
        self.method = method
        self.net = net
        self.recipe = recipe
        self.validation = validation
        self.random_state = random_state
        self.device = device
        self.progress = progress

    def fit(self, X: ArrayLike, y: ArrayLike, attributes: Any = None) -> SpurlessClassifier:
        """Train on samples X (n, d) or images, labels y (n,) and, for methods that use them, bias attributes: (n,),
        (n, k) or {name: (n,)}."""
        samples, y = validate_data(self, X, y, **READ)
        check_classification_targets(y)
        self.classes_, numbers = np.unique(y, return_inverse=True)
        if len(self.classes_) < 2:
            raise ValueError("The number of classes has to be greater than one; got 1 class.")
        seed = int(check_random_state(self.random_state).randint(2**31 - 1))
        result = fit(
            self.method,
            self._bundle(samples, numbers, attributes, seed),
            net=self.net,
            recipe=self.recipe,
            seed=seed,
            device=self.device,
            progress=None if self.progress else False,
        )
        if result.classifier is None:
            raise DataError(f"The training ended as '{result.status}': {result.error}")
        result.bundle = None  # a pickle of the classifier holds no training samples
        self.result_: Result = result
        return self

    def predict_proba(self, X: ArrayLike) -> NDArray[np.float64]:
        """(n, classes) in the order of `classes_`."""
        check_is_fitted(self)
        return self.result_.predict_proba(validate_data(self, X, reset=False, **READ))

    def predict(self, X: ArrayLike) -> NDArray[Any]:
        """(n,) predicted classes."""
        probabilities = self.predict_proba(X)  # first: it tells whoever has not fitted
        chosen: NDArray[Any] = self.classes_[probabilities.argmax(1)]
        return chosen

    def _bundle(self, X: NDArray[Any], numbers: NDArray[Any], attributes: Any, seed: int) -> Bundle:
        fields: dict[str, Any] = {}
        if X.ndim == 2:
            std = X.std(0)
            fields["inputs"] = Table(mean=tuple(X.mean(0).tolist()), std=tuple(np.where(std > 0, std, 1).tolist()))
        names = [str(name) for name in self.classes_]
        return from_arrays(
            X, numbers, attributes, val=self.validation, test=0.0, classes=names, name="X", seed=seed, **fields
        )


# How scikit-learn reads X. Images have more than two dimensions; uint8 stays what it is.
READ: dict[str, Any] = {"allow_nd": True, "dtype": [np.float64, np.float32, np.uint8]}
