"""What is known of the published datasets: files, addresses, checksums, counts and fixed scaling, as data.

No constant of the scaling was computed from training examples, so a prior that is meant to be free of data stays so.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np

from pacbayes.data.cifar import read_batches
from pacbayes.data.digits import read_digits
from pacbayes.data.idx import read_images
from pacbayes.data.scaling import IMAGES, Scaling
from pacbayes.data.strokes import read_strokes

Reader = Callable[[Sequence[Path], tuple[int, ...]], tuple[np.ndarray, np.ndarray]]


@dataclass(frozen=True)
class File:
    """A published file: the names it goes by, and the address of it, or of the tar archive that holds it."""

    names: tuple[str, ...]
    url: str
    sha256: str  # of what the address gives


@dataclass(frozen=True)
class Part:
    """The train or test part. ``read(paths, shape)`` gives pixels, uint8 of that shape, and labels, uint8."""

    count: int
    sha256: str  # of the pixels and then the labels: tells corrupt or other data from the published
    read: Reader
    files: tuple[File, ...] = ()


@dataclass(frozen=True)
class Entry:
    """A dataset of the catalogue."""

    description: str
    shape: tuple[int, ...]  # of one example
    class_names: tuple[str, ...]
    train: Part
    test: Part
    scaling: Scaling = Scaling(offset=0.0)
    subfolders: tuple[str, ...] = ()  # where archives put their files


def _idx_file(base: str, stem: str, dims: int, sha256: str) -> File:
    published = f"{stem}-idx{dims}-ubyte.gz"
    names = (published, f"{stem}-idx{dims}-ubyte", f"{stem}.idx{dims}-ubyte.gz", f"{stem}.idx{dims}-ubyte")
    return File(names, base + published, sha256)


def _idx_part(base: str, stem: str, count: int, images: str, labels: str, sha256: str) -> Part:
    files = (_idx_file(base, f"{stem}-images", 3, images), _idx_file(base, f"{stem}-labels", 1, labels))
    return Part(count, sha256, read_images, files)


def _cifar_part(stems: Sequence[str], sha256: str) -> Part:
    files = tuple(File((f"{stem}.bin", stem), _CIFAR_URL, _CIFAR_SHA256) for stem in stems)
    return Part(10_000 * len(stems), sha256, read_batches, files)


_DIGIT_NAMES = tuple(str(digit) for digit in range(10))
_MNIST = "https://ossci-datasets.s3.amazonaws.com/mnist/"
_FASHION = "http://fashion-mnist.s3-website.eu-central-1.amazonaws.com/"
_CIFAR_URL = "https://www.cs.toronto.edu/~kriz/cifar-10-binary.tar.gz"
_CIFAR_SHA256 = "c4a38c50a1bc5f3a1c5537f2155ab9d68f9f25eb1ed8d9ddda3db29a59bca1dd"

ENTRIES = {
    "digits": Entry(
        description="1,797 handwritten digits of 8 x 8 pixels; comes with scikit-learn",
        shape=(1, 8, 8),
        class_names=_DIGIT_NAMES,
        train=Part(
            1437,
            "cbbdeb6f2159654572ebc44de8dfb7b68275e67e8101e3b6d12f897e7f7a3102",
            partial(read_digits, test=False),
        ),
        test=Part(
            360,
            "7d67c25dac01a835f76ffcd63ba53b7a030d034e1d9d54b87569041eb7072055",
            partial(read_digits, test=True),
        ),
        scaling=Scaling(levels=16, offset=0.0),
    ),
    "strokes": Entry(
        description="22,000 digits of 28 x 28 pixels, drawn by a program: for priors that no data set has shaped",
        shape=(1, 28, 28),
        class_names=_DIGIT_NAMES,
        train=Part(
            20_000,
            "da2954c92e1c98098e23eb09e2b708276b1a01f8bac1528306c8804c8cca1b0d",
            partial(read_strokes, test=False),
        ),
        test=Part(
            2_000,
            "d6faaf1932add06c520a1fc00caead304e4a4297a5a7ad8313f764b57aff8600",
            partial(read_strokes, test=True),
        ),
    ),
    "mnist": Entry(
        description="70,000 handwritten digits of 28 x 28 pixels",
        shape=(1, 28, 28),
        class_names=_DIGIT_NAMES,
        train=_idx_part(
            _MNIST,
            "train",
            60_000,
            images="440fcabf73cc546fa21475e81ea370265605f56be210a4024d2ca8f203523609",
            labels="3552534a0a558bbed6aed32b30c495cca23d567ec52cac8be1a0730e8010255c",
            sha256="edc0d1098aa497be14ace79ddd5171e5a3dcf9c4d196c015389203eb3ba1f59b",
        ),
        test=_idx_part(
            _MNIST,
            "t10k",
            10_000,
            images="8d422c7b0a1c1c79245a5bcf07fe86e33eeafee792b84584aec276f5a2dbc4e6",
            labels="f7ae60f92e00ec6debd23a6088c31dbd2371eca3ffa0defaefb259924204aec6",
            sha256="c3f9adf9c66efb572b1f9326c3a511b45910c7173b97be66ceceeeeaef6b802b",
        ),
    ),
    "fashion-mnist": Entry(
        description="70,000 pieces of clothing of 28 x 28 pixels",
        shape=(1, 28, 28),
        class_names=(
            *("T-shirt/top", "trouser", "pullover", "dress", "coat"),
            *("sandal", "shirt", "sneaker", "bag", "ankle boot"),
        ),
        train=_idx_part(
            _FASHION,
            "train",
            60_000,
            images="3aede38d61863908ad78613f6a32ed271626dd12800ba2636569512369268a84",
            labels="a04f17134ac03560a47e3764e11b92fc97de4d1bfaf8ba1a3aa29af54cc90845",
            sha256="16d82e2b505296aa2b78bd5ea0992634f30419a4c97def7c907d154a35ac6157",
        ),
        test=_idx_part(
            _FASHION,
            "t10k",
            10_000,
            images="346e55b948d973a97e58d2351dde16a484bd415d4595297633bb08f03db6a073",
            labels="67da17c76eaffca5446c3361aaab5c3cd6d1c2608764d35dfb1850b086bf8dd5",
            sha256="9f1ec356a747bfe4ebab3cfb722d3694c9ca737e2570f6f90cf31d7b6fd689d4",
        ),
    ),
    "cifar10": Entry(
        description="60,000 colour photographs of 32 x 32 pixels in ten classes",
        shape=(3, 32, 32),
        class_names=(
            *("airplane", "automobile", "bird", "cat", "deer"),
            *("dog", "frog", "horse", "ship", "truck"),
        ),
        train=_cifar_part(
            [f"data_batch_{i}" for i in range(1, 6)],
            "1e91790dbaf241617ca1f29a9aba08eb9a62df84cc90676b47edd05ad2ab3c94",
        ),
        test=_cifar_part(["test_batch"], "9a4c74f5c8b6f2c4e13d3a1dfb43a5a8cda8a9da515e99fd620d2013a1a6287a"),
        scaling=IMAGES,
        subfolders=("cifar-10-batches-bin", "cifar-10-batches-py"),
    ),
}
