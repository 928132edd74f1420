"""A table of numbers: breast cancer, 569 patients, 30 measurements each."""

from sklearn.datasets import load_breast_cancer

import pacbayes as pb

x, y = load_breast_cancer(return_X_y=True)
prior_data, bound_data = pb.split((x, y), fraction=0.5)

# The scaler is a part of the prior: it may know the prior data, and must not know the bound data.
mean, deviation = prior_data.x.mean(0), prior_data.x.std(0)


def scaled(data: pb.Data) -> tuple:
    return (data.x - mean) / deviation, data.y


net = pb.stochastic(pb.build("mlp", (30,), 2), prior_variance=0.001)
pb.learn_prior(net, scaled(prior_data))
pb.fit(net, scaled(bound_data), epochs=20, rate=0.002, batch_size=64)
certificate = pb.certify(net, scaled(bound_data), bound="best", seed=1)
print(certificate)
print(f"\nThe prior alone, by the binomial bound: {pb.holdout_bound(net, scaled(bound_data), seed=1):.2%}")
