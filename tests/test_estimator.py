"""CertifiedClassifier: scikit-learn's own checks, and what makes its certificate valid."""

from __future__ import annotations

import copy
import math
import pickle
from functools import partial

import numpy as np
import pytest
import torch
from sklearn.base import BaseEstimator, TransformerMixin, clone
from sklearn.compose import make_column_transformer
from sklearn.datasets import load_wine, make_blobs
from sklearn.exceptions import NotFittedError
from sklearn.frozen import FrozenEstimator
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.pipeline import make_pipeline, make_union
from sklearn.preprocessing import FunctionTransformer, Normalizer, StandardScaler
from sklearn.utils.estimator_checks import parametrize_with_checks
from torch import nn

from pacbayes import Certificate, CertifiedClassifier, certify, train_ordinary
from pacbayes.errors import InvalidInput

# The checks fit a hundred times: every stage is there, but shorter.
SHORT = {"draws": 1000, "prior_epochs": 4, "epochs": 4}
QUICK = CertifiedClassifier(**SHORT, random_state=0)


@pytest.mark.filterwarnings("ignore:.*too few for a certificate")
@parametrize_with_checks([CertifiedClassifier(**SHORT)])
def test_scikit_learn_checks(estimator, check):
    check(estimator)


def quick(**options) -> CertifiedClassifier:
    return clone(QUICK).set_params(**options)


def blobs(examples: int = 120, classes: int = 3, spread: float = 1.0) -> tuple[np.ndarray, np.ndarray]:
    x, y = make_blobs(examples, centers=classes, cluster_std=spread, random_state=0)
    return x, np.array(["ash", "beech", "cedar", "date"])[y]


class Spy(TransformerMixin, BaseEstimator):
    """A scaler that keeps what it was fitted on."""

    def fit(self, X, y):
        self.seen, self.labels = np.array(X), np.array(y)
        self.scaler = StandardScaler().fit(X)
        return self

    def transform(self, X):
        return self.scaler.transform(X)


def test_the_certificate_is_a_good_one_for_easy_data():
    x, y = load_wine(return_X_y=True)
    classifier = CertifiedClassifier(random_state=0).fit(x, y)
    certificate = classifier.certificate_
    assert isinstance(certificate, Certificate) and not certificate.check()
    assert certificate.m == len(y) - round(0.5 * len(y))
    assert certificate.risk_bound < 0.2 and classifier.holdout_bound_ < 0.15
    assert classifier.score(x, y) > 0.95


def test_the_certificate_may_be_the_best_of_several_bounds():
    x, y = blobs()
    certificates = [quick(bound=bound).fit(x, y).certificate_ for bound in ("invKL", "best")]
    assert [c.bound for c in certificates] == ["invKL", "best"]
    assert len(certificates[1].parts) > 1 and certificates[0].errors == certificates[1].errors


def test_neither_preprocessing_nor_prior_depend_on_the_bound_data():
    x, y = blobs()
    first = quick(preprocessing=Spy()).fit(x, y)
    seen = first.preprocessing_.seen
    prior_rows = (x[:, None] == seen[None]).all(-1).any(1)
    assert len(seen) == prior_rows.sum() == 60 == len(y) - first.certificate_.m
    label_of = dict(zip(map(tuple, x), np.unique(y, return_inverse=True)[1], strict=True))
    assert [label_of[tuple(row)] for row in seen] == first.preprocessing_.labels.tolist()
    # Other bound data altogether: another certificate, but the same prior and the same scaler.
    other_x, other_y = np.where(prior_rows[:, None], x, 3 * x + 7), np.where(prior_rows, y, y[::-1])
    second = quick(preprocessing=Spy()).fit(other_x, other_y)
    assert (second.preprocessing_.seen == seen).all()
    assert second.certificate_.prior_fingerprint == first.certificate_.prior_fingerprint
    assert second.certificate_.bound_data_fingerprint != first.certificate_.bound_data_fingerprint
    # The prior data do matter.
    third = quick(preprocessing=Spy()).fit(x, np.where(prior_rows, y[::-1], y))
    assert third.certificate_.prior_fingerprint != first.certificate_.prior_fingerprint


def test_the_default_scaler_is_that_of_the_prior_data():
    x, y = blobs()
    spied = quick(preprocessing=Spy()).fit(x, y).preprocessing_.seen
    scaler = quick().fit(x, y).preprocessing_
    assert np.allclose(scaler.mean_, spied.mean(0)) and not np.allclose(scaler.mean_, x.mean(0))


def test_without_prior_data_nothing_is_fitted():
    x, y = blobs(spread=0.3)
    classifier = quick(prior_fraction=0).fit(x, y)
    assert classifier.preprocessing_ is None and classifier.certificate_.m == len(y)
    assert classifier.holdout_bound_ is None
    with pytest.raises(InvalidInput, match="no prior data to fit StandardScaler on"):
        quick(prior_fraction=0, preprocessing=StandardScaler()).fit(x, y)
    assert quick(prior_fraction=0, preprocessing=FunctionTransformer(np.tanh)).fit(x, y).certificate_.m == len(y)


def test_preprocessing_that_looks_at_the_other_examples_is_refused():
    with pytest.raises(InvalidInput, match="depends on the examples beside it"):
        quick(preprocessing=FunctionTransformer(lambda x: x - x.mean(0))).fit(*blobs())


@pytest.mark.parametrize("seed", [0, None])
def test_an_example_has_one_label_for_a_seed_and_fresh_draws_without(seed):
    x, y = blobs(300, spread=3.0)
    classifier = quick(random_state=seed, prior_variance=0.05).fit(x, y)
    labels = [classifier.predict(x) for _ in range(3)]
    if seed is None:
        assert (labels[0] != labels[1]).any() and (labels[1] != labels[2]).any()
        return
    assert (labels[0] == labels[1]).all() and (labels[0] == labels[2]).all()
    assert (classifier.predict(x[7:9]) == labels[0][7:9]).all()
    assert (clone(classifier).fit(x, y).predict(x) == labels[0]).all()
    assert (classifier.classes_[classifier.predict_proba(x).argmax(1)] == labels[0]).all()


def test_predict_and_vote_share_follow_the_law_of_the_posterior():
    """Frequencies against 20,000 independent draws for each example.

    False alarms: Hoeffding's inequality for each of 2 x 12 x 3 frequencies, so below 1e-8 in all.
    """
    x, y = blobs(120, spread=3.0)
    classifier = quick(prior_variance=0.1, prior_epochs=0, epochs=1).fit(x, y)
    some, repeats = x[:12], 300
    inputs = classifier._inputs(some)
    with torch.no_grad():
        outputs = classifier.network_(inputs.repeat_interleave(20_000, 0), "independent")
    law = nn.functional.one_hot(outputs.argmax(-1), 3).view(12, 20_000, 3).double().mean(1).numpy()
    assert 0.1 < law.max(1).min() < 0.8  # some labels are in doubt, so the test has power

    def allowed(n: int) -> float:
        return sum(math.sqrt(math.log(2 * 72 / 1e-8) / (2 * k)) for k in (n, 20_000))

    drawn = np.stack([classifier.set_params(random_state=seed).predict(some) for seed in range(repeats)])
    frequencies = (drawn[:, :, None] == classifier.classes_).mean(0)
    assert np.abs(frequencies - law).max() < allowed(repeats)
    assert np.abs(classifier.set_params(random_state=1).vote_share(some) - law).max() < allowed(256)


class Twice(nn.Module):
    """A layer that is applied twice has no rule: all its weights are drawn for each example."""

    def __init__(self):
        super().__init__()
        self.body, self.head = nn.Linear(2, 2), nn.Linear(2, 3)

    def forward(self, x):
        return self.head(torch.tanh(self.body(torch.tanh(self.body(x)))))


@pytest.mark.parametrize("model", ["mlp", Twice()], ids=["rules", "no rule"])
def test_each_example_has_a_draw_of_its_own(model):
    """One example at a time with one seed, the labels of like examples are still draws, not those of a few networks.

    Over many examples the errors are then as frequent as the risk of Q says: 6 standard errors, 2e-9 for each seed.
    """
    x, y = blobs(120, spread=3.0)
    classifier = quick(model=model, prior_variance=0.1, prior_epochs=0, epochs=1).fit(x, y)
    assert classifier.network_.drawn_by_rules == (model == "mlp")
    doubtful = x[classifier.vote_share(x).max(1).argmin()]
    near = doubtful + 1e-6 * np.arange(4000)[:, None]
    labels = classifier.predict(near)
    assert [classifier.predict(one[None])[0] for one in near[:20]] == list(labels[:20])
    assert (np.concatenate([classifier.predict(part) for part in np.array_split(near, 7)]) == labels).all()
    with torch.no_grad():
        outputs = classifier.network_(classifier._inputs(near).repeat(25, 1), "independent")
    law = torch.bincount(outputs.argmax(-1), minlength=3).double() / 100_000
    for seed in range(10):
        drawn = classifier.set_params(random_state=seed).predict(near)
        rates = (drawn[:, None] == classifier.classes_).mean(0)
        assert np.abs(rates - law.numpy()).max() < 6 * (0.25 / 4000 + 0.25 / 100_000) ** 0.5


def test_in_a_pipeline_and_a_grid_search():
    x, y = blobs()
    pipeline = make_pipeline(FunctionTransformer(np.arcsinh), quick())
    assert cross_val_score(pipeline, x, y, cv=2).min() > 0.7
    search = GridSearchCV(pipeline, {"certifiedclassifier__rate": np.array([0.001, 0.005])}, cv=2).fit(x, y)
    assert not search.best_estimator_[-1].certificate_.check()
    assert search.score(x, y) > 0.7


def test_pandas_tables_with_words_and_gaps():
    pandas = pytest.importorskip("pandas")
    from sklearn.compose import make_column_transformer
    from sklearn.impute import SimpleImputer
    from sklearn.preprocessing import OneHotEncoder

    x, y = blobs()
    table = pandas.DataFrame({"width": x[:, 0], "height": x[:, 1], "place": ["wood", "park"] * 60})
    table.loc[3, "width"] = np.nan
    encoder = make_column_transformer(
        (make_pipeline(SimpleImputer(), StandardScaler()), ["width", "height"]),
        (OneHotEncoder(handle_unknown="ignore"), ["place"]),
    )
    classifier = quick(preprocessing=encoder).fit(table, pandas.Series(y))
    assert list(classifier.feature_names_in_) == ["width", "height", "place"]
    assert classifier.score(table, y) > 0.7 and classifier.certificate_.m == 60
    with pytest.raises(ValueError, match="feature names"):
        classifier.predict(table.rename(columns={"width": "breadth"}))
    for columns, hint in (
        (["width"], "contains NaN: give .*SimpleImputer"),
        (["place"], "contains words: give .*OneHot"),
    ):
        with pytest.raises(InvalidInput, match=hint):
            quick().fit(table[columns], y)
    unscaled = quick(random_state=0).fit(x, y)
    with pytest.raises(InvalidInput, match="contains NaN: give .*SimpleImputer"):
        unscaled.predict(np.full((2, 2), np.nan))
    with pytest.raises(InvalidInput, match="choose a prior_fraction above 0"):
        quick(prior_fraction=0).fit(table[["width"]], y)
    with pytest.raises(InvalidInput, match=r"label y\[0\] is missing"):
        quick().fit(x, pandas.Series([None, *y[1:]], dtype="string"))
    # Without words and gaps a table needs nothing else.
    assert quick().fit(table[["height"]], y).feature_names_in_ == ["height"]


def test_a_pickled_classifier_predicts_the_same_and_holds_no_data():
    x, y = make_blobs(2000, n_features=50, random_state=0)
    classifier = quick(pretraining_epochs=1, prior_epochs=0, epochs=1).fit(x, y)
    held = pickle.dumps(classifier)
    assert len(held) < 4 * x.size / 2
    again = pickle.loads(held)
    assert (again.predict(x) == classifier.predict(x)).all()
    assert again.certificate_ == classifier.certificate_ and classifier.network_.prior_trained_on


def test_a_copy_of_a_classifier_knows_the_data_behind_its_model():
    """Copied, pickled, or sent to another process, it refuses what it refused before."""
    x, y = make_blobs(80, centers=3, random_state=0)
    model = train_ordinary(nn.Sequential(nn.Linear(2, 8), nn.ReLU(), nn.Linear(8, 3)), (x, y), epochs=1)
    classifier = quick(model=model, preprocessing=None, prior_fraction=0.0)
    for one in (classifier, copy.deepcopy(classifier), pickle.loads(pickle.dumps(classifier))):
        with pytest.raises(InvalidInput, match="trained on some of the bound data"):
            one.fit(x, y)
    fitted = pickle.loads(pickle.dumps(quick().fit(x, y)))
    with pytest.raises(InvalidInput, match="the prior was trained on some of these data"):
        certify(fitted.network_, (fitted.preprocessing_.transform(x), y), draws=50)


def test_a_refit_that_fails_leaves_no_old_certificate():
    x, y = blobs(80)
    classifier = quick().fit(x, y)
    with pytest.raises(InvalidInput):
        classifier.set_params(prior_variance=0.0).fit(x, y)
    with pytest.raises(NotFittedError):
        classifier.predict(x)
    assert not hasattr(classifier, "certificate_")


class Stubborn(StandardScaler):
    """It stays as it is where a copy is wanted that has seen nothing."""

    def __sklearn_clone__(self):
        return self


def test_a_preprocessing_that_looks_back_or_is_fitted_is_refused():
    x, y = blobs(80)
    fitted = StandardScaler().fit(x)

    def with_a_default(x, *, scaler=fitted):
        return scaler.transform(x)

    looks_back = FunctionTransformer(lambda x: np.cumsum(x, axis=0) / np.arange(1, len(x) + 1)[:, None])
    for preprocessing, words in (
        (looks_back, "depends on the examples beside it"),
        (FrozenEstimator(fitted), "fitted already"),
        (make_pipeline(FrozenEstimator(fitted)), "fitted already"),
        (FunctionTransformer(fitted.transform), "fitted already"),
        (FunctionTransformer(lambda x: fitted.transform(x)), "fitted already"),
        (FunctionTransformer(partial(StandardScaler.transform, fitted)), "fitted already"),
        (make_pipeline(Stubborn().fit(x)), "fitted already"),
        (FunctionTransformer(with_a_default), "fitted already"),
        (FunctionTransformer(make_pipeline(StandardScaler(), Normalizer()).fit(x).transform), "fitted already"),
    ):
        with pytest.raises(InvalidInput, match=words):
            quick(preprocessing=preprocessing).fit(x, y)


@pytest.mark.parametrize(
    "preprocessing",
    [
        make_pipeline(StandardScaler(), Normalizer()),
        make_pipeline(FunctionTransformer(np.arcsinh)),
        make_union(StandardScaler(), Normalizer()),
        make_column_transformer((make_pipeline(StandardScaler(), FunctionTransformer(np.arcsinh)), [0, 1])),
        StandardScaler().fit(np.eye(2)),
    ],
    ids=["pipeline", "stateless", "union", "columns", "fitted, and fitted anew"],
)
def test_a_preprocessing_that_is_not_fitted_is_taken(preprocessing):
    assert quick(preprocessing=preprocessing).fit(*blobs(80)).certificate_.check() == []


def test_too_few_examples_give_a_classifier_without_a_certificate():
    x, y = blobs(15)
    with pytest.warns(UserWarning, match="15 examples are too few for a certificate"):
        classifier = quick().fit(x, y)
    assert classifier.certificate_ is None and len(classifier.predict(x)) == 15
    assert quick().fit(*blobs(16)).certificate_.m == 8


def test_a_module_of_ones_own():
    x, y = blobs()
    model = nn.Sequential(nn.Linear(2, 20), nn.Tanh(), nn.Linear(20, 3))
    before = model[0].weight.clone()
    classifier = quick(model=model).fit(x, y)
    assert classifier.score(x, y) > 0.7 and torch.equal(model[0].weight, before)
    with pytest.raises(InvalidInput, match="3 outputs for 2 classes"):
        quick(model=model).fit(x, y == "ash")


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"model": "perceptron"}, "unknown model"),
        ({"model": 3}, "model must be the name"),
        ({"preprocessing": "scale"}, "preprocessing must be"),
        ({"prior_fraction": 1.0}, "prior_fraction"),
        ({"epochs": 0}, "epochs"),
        ({"draws": 0}, "draws"),
        ({"bound": "least"}, "'least'.*best"),
        ({"delta": 2.0}, "delta"),
        ({"objective": "best"}, "best"),
    ],
)
def test_bad_settings_are_named(options, words):
    with pytest.raises(InvalidInput, match=words):
        quick(**options).fit(*blobs())


def test_inputs_that_recur_are_pointed_out_where_their_draws_are_fixed():
    x, y = np.arange(200)[:, None] % 2, np.arange(200) % 2
    options = {"model": "mlp", "prior_fraction": 0, "draws": 100, "epochs": 1}
    with pytest.warns(UserWarning, match="equal inputs have one draw for all time"):
        CertifiedClassifier(random_state=0, **options).fit(x, y)
    CertifiedClassifier(**options).fit(x, y)
    CertifiedClassifier(random_state=0, **options).fit(np.arange(200)[:, None] / 100, y)


@pytest.mark.parametrize("outlier", [1.0, 1e6])
def test_a_preprocessing_that_mixes_small_examples_is_refused(outlier):
    x, y = 1e-6 * np.random.default_rng(0).normal(size=(200, 4)), np.arange(200) % 2
    x[-1] *= outlier
    mixing = FunctionTransformer(lambda x: x - x.mean(0))
    with pytest.raises(InvalidInput, match="depends on the examples beside it"):
        CertifiedClassifier(preprocessing=mixing, random_state=0).fit(x, y)
