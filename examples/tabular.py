"""A table of numbers: breast cancer, 569 patients, 30 measurements each."""

from sklearn.datasets import load_breast_cancer

import pacbayes as pb

x, y = load_breast_cancer(return_X_y=True)
prior_data, bound_data = pb.split((x, y), fraction=0.5)

# The scaling is a part of the prior: it may know the prior data, and must not know the bound data.
model = pb.standardise(pb.build("mlp", (30,), 2), prior_data)
net = pb.stochastic(model, prior_variance=0.001)
pb.learn_prior(net, prior_data)
pb.fit(net, bound_data, epochs=20, rate=0.002, batch_size=64)
print(pb.certify(net, bound_data, bound="best", seed=1))
print(f"\nThe prior alone, by the binomial bound: {pb.holdout_bound(net, bound_data, seed=1):.2%}")
