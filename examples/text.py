"""Texts: a vocabulary and an embedding made from the prior texts alone, and a stochastic head over them.

A pre-trained encoder takes the place of both: x = encoder.encode(texts), and the head is an nn.Linear.
"""

import numpy as np
import torch
from torch import nn

import pacbayes as pb

# Reviews, as a simple grammar writes them; one in twenty has the wrong label.
PRAISE = ["warm", "moving", "clever", "lively", "honest", "tender", "gripping", "bright"]
BLAME = ["dull", "cold", "clumsy", "lifeless", "false", "empty", "tedious", "grey"]
OTHER = ["the", "a", "film", "plot", "cast", "and", "but", "with", "its", "was", "very", "scene", "music", "end"]


def review(generator: np.random.Generator, label: int) -> str:
    words = [*generator.choice((BLAME, PRAISE)[label], 3), generator.choice((PRAISE, BLAME)[label])]
    return " ".join(generator.permutation([*words, *generator.choice(OTHER, 12)]))


generator = np.random.default_rng(0)
truth = generator.integers(0, 2, 3000)
texts = [review(generator, label) for label in truth]
labels = np.where(generator.random(3000) < 0.05, 1 - truth, truth)

# The split comes first. It is made of numbers of texts, for nothing about words is known yet.
prior, bound = (data.x[:, 0].long().tolist() for data in pb.split((np.arange(3000)[:, None], labels), fraction=0.5))
vocabulary = {word: i for i, word in enumerate(sorted({word for i in prior for word in texts[i].split()}), start=1)}


def numbered(rows: list[int]) -> tuple[np.ndarray, np.ndarray]:
    """16 numbers a text, one a word; 0 for a word that no prior text has."""
    return np.array([[vocabulary.get(word, 0) for word in texts[i].split()] for i in rows]), labels[rows]


class Bag(nn.Module):
    """The mean of the words' embeddings, and a Linear."""

    def __init__(self, words: int):
        super().__init__()
        self.embedding, self.head = nn.Embedding(words, 16), nn.Linear(16, 2)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(self.embedding(x.long()).mean(1))


torch.manual_seed(0)
model = Bag(len(vocabulary) + 1)
x, y = (torch.from_numpy(array) for array in numbered(prior))
optimiser = torch.optim.Adam(model.parameters(), lr=0.01)
for _ in range(15):
    for batch in torch.randperm(len(y)).split(64):
        optimiser.zero_grad()
        nn.functional.cross_entropy(model(x[batch]), y[batch]).backward()
        optimiser.step()

prior_features, head = pb.features(model, numbered(prior))  # the embedding is fixed from here on
bound_features, _ = pb.features(model, numbered(bound))
net = pb.stochastic(head, prior_variance=1e-4)
pb.scale_prior(net, prior_features, tolerance=0.005)
pb.fit(net, bound_features, epochs=10, rate=0.01, batch_size=64)
print(pb.certify(net, bound_features, bound="best", sampling="exact"))
print(f"\nThe prior alone, by the binomial bound: {pb.holdout_bound(net, bound_features, seed=1):.2%}")
