"""``CertifiedClassifier``: prior, posterior and certificate behind scikit-learn's ``fit`` and ``predict``."""

from __future__ import annotations

import copy
import hashlib
import numbers
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any, Self

import numpy as np
import torch
from sklearn.base import BaseEstimator, ClassifierMixin, clone
from sklearn.preprocessing import StandardScaler
from sklearn.utils import _safe_indexing, check_random_state, get_tags
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import _num_samples, check_is_fitted, column_or_1d, validate_data
from torch import Tensor, nn

from pacbayes.bounds.deltas import check_deltas
from pacbayes.bounds.pac_bayes import SMALLEST_M
from pacbayes.certificates import certify, formulas_of, holdout_bound
from pacbayes.checks import check_count, check_in_range, check_number
from pacbayes.data import Data, as_data, split_indices
from pacbayes.data.arrays import as_inputs
from pacbayes.data.dataset import spread_rows
from pacbayes.data.labels import refuse_missing
from pacbayes.devices import device_named
from pacbayes.errors import InvalidInput
from pacbayes.fitted import holds_a_fitted_one
from pacbayes.networks import StochasticNetwork, build, stochastic
from pacbayes.networks.layers import Draw
from pacbayes.networks.memory import chunk_size
from pacbayes.networks.normals import Seeded
from pacbayes.networks.precision import full_precision
from pacbayes.networks.refusals import near
from pacbayes.networks.shaping import data_behind
from pacbayes.networks.votes import tally
from pacbayes.seeds import derived_seed
from pacbayes.training import Settings, fit, learn_prior
from pacbayes.training.priors import PRETRAINING, PRIOR_TRAINING

VOTES = 256
"""How many draws ``vote_share`` makes for each example."""

_PROBES = 16
# Of the bound data, whose inputs may recur.
_RECURRING = 0.1
_WEIGHTS_AT_ONCE = 2**24

_SPLIT, _START, _PRIOR, _POSTERIOR, _CERTIFICATE, _HOLDOUT, _PREDICTION = range(7)


# What scikit-learn says of X, what that means, and the preprocessing that helps.
_NOT_NUMBERS = (
    ("X contains NaN", "Input X contains NaN", "make_pipeline(SimpleImputer(), StandardScaler())"),
    (
        "could not convert string to float",
        "Input X contains words",
        'make_column_transformer((OneHotEncoder(handle_unknown="ignore"), COLUMNS), remainder=StandardScaler())',
    ),
)


class CertifiedClassifier(ClassifierMixin, BaseEstimator):
    """A neural classifier with a certificate, as a scikit-learn estimator.

    ``fit`` cuts the examples at random into prior data and bound data, fits the preprocessing and learns the prior on
    the first part, trains the posterior on the second, and certifies it there: ``certificate_``.

    The certificate is about the *randomised* classifier that ``predict`` is: each example is labelled by a network
    drawn for it from the posterior. With an integer ``random_state`` the draw for an example follows from the example,
    which then has the same label in every call, whatever stands beside it; without one draws are fresh. Equal examples
    share such a draw: where inputs recur, the certificate holds on average over its seeds, and for fresh draws.

    Whatever stands before it in a ``Pipeline`` and learns from data (a scaler, an imputer, a selection of features)
    has seen the bound data, and there is **no valid certificate** then: give it as ``preprocessing``. The same holds
    for a search over settings of the prior on the data of the final ``fit``: see the README.

    - ``model``: the name of an architecture (see :func:`pacbayes.build`), or a module for these features and classes
      that has not been trained on these data. It is copied.
    - ``preprocessing``: a transformer, fitted on the prior data only. ``"auto"`` is a StandardScaler, or nothing where
      there are no prior data. It is given X as it is, so it may take care of words and missing values.
    - ``prior_fraction``: the share of the examples that are prior data; 0 for a prior without data.
    - ``pretraining_epochs``, ``prior_epochs``: of the prior, by cross-entropy and then by Cond-Gauss; 0 for none.
    - ``objective``, ``epochs``, ``rate``, ``batch_size``: of the posterior. The bound holds for
      all posteriors at once, so these may be chosen by it; but each certificate has draws of its own, and the best of K
      certificates fails K times as often as ``mc_delta`` says.
    - ``delta``, ``mc_delta``, ``draws``, ``bound``: as in :func:`pacbayes.certify`.

    The labels in y are taken for all the classes that there are, known before the data. The split ignores them:
    stratified parts would not be independent examples.

    Fitted: ``certificate_`` (None with a warning, where there are too few examples), ``holdout_bound_`` (the plain one
    of the prior, at the same confidence), ``classes_``, ``network_``, ``preprocessing_``.

    >>> from sklearn.datasets import load_wine
    >>> x, y = load_wine(return_X_y=True)
    >>> classifier = CertifiedClassifier(random_state=0).fit(x, y)
    >>> classifier.certificate_.risk_bound < 0.2
    True
    """

    def __init__(
        self,
        model: str | nn.Module = "mlp",
        *,
        preprocessing: Any = "auto",
        prior_fraction: float = 0.5,
        prior_variance: float = 0.001,
        pretraining_epochs: int = 20,
        prior_epochs: int = 10,
        objective: str = "invKL",
        epochs: int = 10,
        rate: float = 0.002,
        batch_size: int = 64,
        delta: float = 0.025,
        mc_delta: float = 0.01,
        draws: int = 20_000,
        bound: str = "invKL",
        device: str = "cpu",
        random_state: Any = None,
    ):
        self.model = model
        self.preprocessing = preprocessing
        self.prior_fraction = prior_fraction
        self.prior_variance = prior_variance
        self.pretraining_epochs = pretraining_epochs
        self.prior_epochs = prior_epochs
        self.objective = objective
        self.epochs = epochs
        self.rate = rate
        self.batch_size = batch_size
        self.delta = delta
        self.mc_delta = mc_delta
        self.draws = draws
        self.bound = bound
        self.device = device
        self.random_state = random_state

    def fit(self, X: Any, y: Any) -> Self:
        """Learn a prior on one part of the examples; train and certify a posterior on the other."""
        # A refit that fails must not leave an old certificate beside new parts.
        for name in [name for name in vars(self) if name.endswith("_") and not name.startswith("_")]:
            delattr(self, name)
        # Searches over settings pass numpy's scalars.
        given = {k: v.item() if isinstance(v, np.generic) else v for k, v in self.get_params(deep=False).items()}
        certified = {name: given[name] for name in ("delta", "mc_delta", "draws", "bound")}
        check_deltas(certified["delta"], certified["mc_delta"])
        check_count("draws", certified["draws"])
        formulas_of(certified["bound"], "randomised")
        pretraining = _stage(PRETRAINING, given["pretraining_epochs"])
        training = _stage(PRIOR_TRAINING, given["prior_epochs"])
        posterior = Settings.of(**{k: given[k] for k in ("objective", "epochs", "rate", "batch_size", "delta")})
        X, labels = self._checked(X, y)
        seed = int(check_random_state(self.random_state).randint(2**31))
        prior_rows, bound_rows = self._split(len(labels), derived_seed(seed, _SPLIT))
        self.preprocessing_ = self._fit_preprocessing(X, labels, prior_rows)
        data = as_data((self._inputs(X), labels), classes=len(self.classes_))

        if len(bound_rows) and isinstance(self.model, nn.Module) and (seen := data_behind(self.model)):
            if seen.unnamed:
                raise InvalidInput("the model has learnt from data that nobody has named: give an untrained one")
            try:
                # As they were given: scaled, they would not be recognised.
                raw = as_data((X, labels), classes=len(self.classes_))
            except InvalidInput:
                raw = data  # not numbers before the preprocessing
            if raw.take(bound_rows).overlaps(*seen):
                raise InvalidInput("the model was trained on some of the bound data: give fit() other examples")
        net = self._new_network(data, derived_seed(seed, _START))
        if len(prior_rows):
            # A prior may come about in any way: too few examples for a stage of training are used several times.
            rows = np.resize(prior_rows, max(len(prior_rows), SMALLEST_M))
            pretraining, training = (
                stage and replace(stage, seed=derived_seed(seed, _PRIOR, i))
                for i, stage in enumerate((pretraining, training))
            )
            learn_prior(net, data.take(rows), pretraining=pretraining, training=training)
        self.network_, self.certificate_, self.holdout_bound_ = net, None, None
        if not len(bound_rows):
            warnings.warn(
                f"{len(labels)} examples are too few for a certificate, which needs {SMALLEST_M} bound data: "
                "certificate_ is None",
                stacklevel=2,
            )
            return self
        bound_data = data.take(bound_rows)
        if isinstance(self.random_state, numbers.Integral) and bound_data.recurring > _RECURRING:
            warnings.warn(
                f"{100 * bound_data.recurring:.0f} % of the examples have the inputs of another one, and with an "
                "integer random_state equal inputs have one draw for all time: the certificate is about draws of their "
                "own, random_state=None",
                stacklevel=2,
            )
        fit(net, bound_data, settings=replace(posterior, seed=derived_seed(seed, _POSTERIOR)))
        self.certificate_ = certify(net, bound_data, seed=derived_seed(seed, _CERTIFICATE), **certified)
        if len(prior_rows):
            confidence = {"delta": certified["delta"] + certified["mc_delta"]}
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # certify has said it
                self.holdout_bound_ = holdout_bound(net, bound_data, seed=derived_seed(seed, _HOLDOUT), **confidence)
        return self

    def predict(self, X: Any) -> np.ndarray:
        """A label for each example, by a network drawn from the posterior: what the certificate is about."""
        check_is_fitted(self, "network_")
        labels: np.ndarray = self.classes_[self._outputs(X).argmax(-1).numpy()]
        return labels

    def predict_proba(self, X: Any) -> np.ndarray:
        """The softmax of the drawn network that labels each example: its largest entry is at the label of ``predict``.

        It is as random as that label, and no frequency is promised: the certificate is about labels.
        """
        check_is_fitted(self, "network_")
        probabilities: np.ndarray = torch.softmax(self._outputs(X).double(), -1).numpy()
        return probabilities

    @torch.no_grad()
    def vote_share(self, X: Any) -> np.ndarray:
        """The share of 256 drawn networks that give each class: with which probability ``predict`` does.

        Over new examples, one minus the share of the true class averages to the true risk, which the certificate
        bounds. The class of the largest share, a majority vote, errs at most twice as often as is certified (for an
        integer random_state, on average over these).
        """
        check_is_fitted(self, "network_")
        x, seed = self._new_inputs(X)
        net, generator = self._prediction(seed)
        share: np.ndarray = tally(net, x, "shared", VOTES, generator).numpy() / VOTES
        return share

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        if not self._validates_itself():
            tags.input_tags = get_tags(self.preprocessing).input_tags
        return tags

    def _validates_itself(self) -> bool:
        return self.preprocessing is None or isinstance(self.preprocessing, str)

    def _checked(self, X: Any, y: Any) -> tuple[Any, np.ndarray]:
        """X, as numbers unless the preprocessing sees to that, and y as numbers of classes."""
        words = np.asarray(y) if hasattr(y, "__len__") else None
        if words is not None and words.ndim == 1 and words.dtype.kind == "O":
            refuse_missing(words)
        if self._validates_itself():
            with self._numbers_are_needed():
                X, y = validate_data(self, X, y, dtype="numeric")
        else:
            validate_data(self, X, skip_check_array=True)
            y = column_or_1d(y, warn=True)
            if _num_samples(X) != len(y):
                raise InvalidInput(f"X has {_num_samples(X)} examples but y has {len(y)} labels")
        check_classification_targets(y)
        self.classes_, labels = np.unique(y, return_inverse=True)
        if len(self.classes_) < 2:
            raise InvalidInput(f"there must be two classes or more, and y has 1 class, {self.classes_.tolist()[0]!r}")
        return X, labels

    @contextmanager
    def _numbers_are_needed(self) -> Iterator[None]:
        """Say what helps where scikit-learn finds none: in a pipeline, as it advises, it would see the bound data."""
        try:
            yield
        except ValueError as error:
            for words, what, preprocessing in _NOT_NUMBERS:
                if words in str(error):
                    more = "" if self.prior_fraction else ", of which there are none: choose a prior_fraction above 0"
                    raise InvalidInput(
                        f"{what}: give preprocessing={preprocessing}, which is fitted on the prior data alone{more}"
                    ) from None
            raise

    def _split(self, examples: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
        """The rows of prior and bound data; everything is prior data where no certificate is possible."""
        everything, nothing = np.arange(examples), np.arange(0)
        check_number("prior_fraction", self.prior_fraction)
        check_in_range("prior_fraction", self.prior_fraction, 0, 1, closed_low=True)
        cut = round(self.prior_fraction * examples)
        if examples - cut < SMALLEST_M:
            return everything, nothing
        return split_indices(examples, self.prior_fraction, seed) if cut else (nothing, everything)

    def _fit_preprocessing(self, X: Any, labels: np.ndarray, prior_rows: np.ndarray) -> Any:
        transformer = self.preprocessing
        if isinstance(transformer, str):
            if transformer != "auto":
                raise InvalidInput(f"preprocessing must be 'auto', None or a transformer, and is {transformer!r}")
            transformer = StandardScaler() if len(prior_rows) else None
        if transformer is None:
            return None
        transformer = clone(transformer)
        if holds_a_fitted_one(transformer):
            raise InvalidInput(
                "the preprocessing, or a part of it, is fitted already, and may have seen the bound data: give one "
                "that is not, to be fitted on the prior data"
            )
        if not len(prior_rows):
            if get_tags(transformer).requires_fit:
                raise InvalidInput(
                    f"there are no prior data to fit {type(transformer).__name__} on, and fitted on the bound data it "
                    "would void the certificate: choose a prior_fraction above 0, or preprocessing=None"
                )
            return transformer
        return transformer.fit(_safe_indexing(X, prior_rows), labels[prior_rows])

    def _inputs(self, X: Any) -> Tensor:
        """What the network sees: float32 [n, ...]."""
        if self.preprocessing_ is None:
            return as_inputs(X)
        x, count = self._transformed(X), _num_samples(X)
        rows = spread_rows(count, _PROBES).numpy()
        alone = torch.cat([self._transformed(_safe_indexing(X, rows[i : i + 1])) for i in range(len(rows))])
        if not near(alone, x[rows]):
            raise InvalidInput(
                f"what {type(self.preprocessing_).__name__} makes of an example depends on the examples beside it: "
                "there is no valid certificate for that"
            )
        return x

    def _transformed(self, X: Any) -> Tensor:
        # Of a copy: some overwrite what they are given.
        x = self.preprocessing_.transform(copy.copy(X))
        return as_inputs(x.toarray() if hasattr(x, "toarray") else x)

    def _new_network(self, data: Data, seed: int) -> StochasticNetwork:
        model = self.model
        if isinstance(model, str):
            model = build(model, data.shape, data.classes, seed=seed)
        elif not isinstance(model, nn.Module):
            raise InvalidInput(f"model must be the name of an architecture or an nn.Module, and is {model!r}")
        net = stochastic(model, self.prior_variance).to(device_named(self.device))
        if net.classes != data.classes:
            raise InvalidInput(f"the model has {net.classes} outputs for {data.classes} classes")
        return net

    def _new_inputs(self, X: Any) -> tuple[Tensor, int]:
        """New examples as the network sees them, and a seed: the same one in each call for an integer random_state."""
        if self._validates_itself():
            with self._numbers_are_needed():
                X = validate_data(self, X, dtype="numeric", reset=False)
        else:
            validate_data(self, X, reset=False, skip_check_array=True)
        return self._inputs(X), int(check_random_state(self.random_state).randint(2**31))

    @torch.no_grad()
    def _outputs(self, X: Any) -> Tensor:
        """The outputs for each example of the network that is drawn for it."""
        x, seed = self._new_inputs(X)
        net, generator = self._prediction(seed)
        if not isinstance(self.random_state, numbers.Integral):
            return _passed(net, x, lambda some: net(some, "independent", generator))

        def own_draws(some: Tensor) -> Tensor:
            # A hash of the seed and the example: as good as independent of all else.
            rows, key = some.flatten(1).cpu().numpy(), seed.to_bytes(8, "little")
            digests = (hashlib.blake2b(row.tobytes(), digest_size=16, key=key).digest() for row in rows)
            seeds = [int.from_bytes(digest, "little") for digest in digests]
            return net.drawn(some, Draw("independent", Seeded(seeds, net.mean)))

        return _passed(net, x, own_draws)

    def _prediction(self, seed: int) -> tuple[StochasticNetwork, torch.Generator]:
        net = self.network_
        return net, torch.Generator(net.mean.device).manual_seed(derived_seed(seed, _PREDICTION))


def _passed(net: StochasticNetwork, x: Tensor, run: Callable[[Tensor], Tensor]) -> Tensor:
    """What is computed of these inputs, as many at a time as fit into memory, in float32 on the CPU."""
    size = chunk_size(net, x)
    if not net.drawn_by_rules:
        # Each has a draw of all the weights, which are drawn for all of them at once.
        size = max(1, min(size, _WEIGHTS_AT_ONCE // len(net.mean)))
    with full_precision():  # as it was counted
        return torch.cat([run(some.to(net.mean.device)).float().cpu() for some in x.split(size)])


def _stage(settings: Settings, epochs: int) -> Settings | None:
    return replace(settings, epochs=epochs) if epochs else None
