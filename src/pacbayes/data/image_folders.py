"""A folder of images, one subfolder a class: ``photos/cat/1.png``. Pillow reads them: only the formats named here."""

import math
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import torch

from pacbayes.data.dataset import Data
from pacbayes.data.faults import faults_of
from pacbayes.data.labels import class_order, number_labels
from pacbayes.data.scaling import IMAGES, Scaling, scaled
from pacbayes.errors import DataError, InvalidInput, MissingData

MAX_BYTES, MAX_PIXELS, MAX_SIDE = 2**33, 2**26, 4096
# With a byte for each pixel's colour; photographs take from a third to a fiftieth of that, and drawings hardly any.
UNPACKED_BYTES, MOST_EXPANSION = 2**29, 100
FORMATS = {".png": "PNG", ".jpg": "JPEG", ".jpeg": "JPEG", ".bmp": "BMP", ".webp": "WEBP", ".pgm": "PPM", ".ppm": "PPM"}
_GREY, _COLOUR = ("1", "L"), ("P", "LA", "PA", "RGB", "RGBA", "CMYK", "YCbCr")


@dataclass(frozen=True)
class Images:
    """Labelled files, of which none is decoded yet. shape: [channels, height, width] of all of them."""

    files: tuple[Path, ...]
    labels: np.ndarray
    class_names: tuple[str, ...]
    shape: tuple[int, int, int]

    def __len__(self) -> int:
        return len(self.files)

    def read(self, rows: slice, scaling: Scaling = IMAGES) -> np.ndarray:
        """float32 [n, channels, height, width]."""
        pillow, chosen, table = _pillow(), self.files[rows], scaling.table()
        x = np.empty((len(chosen), *self.shape), np.float32)
        for i, file in enumerate(chosen):
            x[i] = scaled(_decoded(pillow, file, *self.shape), table)
        return x


def read_image_folder(path: Path, side: str = "", part: str = "train") -> Data:
    """Images as x = (pixel / 255 - 0.5) / 0.25, [channels, height, width]; as ``find_images``, all in memory."""
    images = find_images(path, side, part)
    point_out_empty_classes(path)
    with faults_of(path):
        _check_memory(images.files, images.shape, "write them to a folder that is read as needed with 'pacbayes store'")
        x = torch.from_numpy(images.read(slice(None)))
        labels, names = torch.from_numpy(images.labels), images.class_names
        return Data(x, labels, len(names), path.name, names, scaling=IMAGES)


def unlabelled_images(path: Path) -> list[Path]:
    """The image itself, or those of a folder that holds nothing else; none where there are other things or classes."""
    files = [path] if path.is_file() else list(_visible(path)) if path.is_dir() else []
    others = [file for file in files if not (file.suffix.lower() in FORMATS and file.is_file())]
    if others and len(others) < len(files) and not any(file.is_dir() for file in others):
        raise _no_image(others[0])
    return [] if others else files


def read_images(
    files: Sequence[Path], shape: tuple[int, ...], *, resize: bool, scaling: Scaling = IMAGES
) -> torch.Tensor:
    """These images as examples of this shape; of another size only if they may be resized."""
    if len(shape) != 3 or shape[0] not in (1, 3):
        raise InvalidInput(f"an example has shape {list(shape)}, which no image has")
    channels, height, width = shape
    _check_memory(files, (channels, height, width), "give fewer at a time")
    for file in files:
        (wide, high), _ = _header(_pillow(), file)
        if not resize and (wide, high) != (width, height):
            raise DataError(f"{file} has {wide} x {high} pixels, and those of the training data {width} x {height}")
    labels = np.zeros(len(files), np.int64)
    return torch.from_numpy(Images(tuple(files), labels, (), (channels, height, width)).read(slice(None), scaling))


def _check_memory(files: Sequence[Path], shape: tuple[int, int, int], remedy: str) -> None:
    pixels = len(files) * math.prod(shape)
    size = f"{len(files)} images of {shape[2]} x {shape[1]} pixels"
    if 4 * pixels > MAX_BYTES:
        raise DataError(f"{size} would take more than {MAX_BYTES} bytes: {remedy}")
    if pixels <= UNPACKED_BYTES:
        return
    # Scaled up, a few small files may be made to fill the memory. One that goes by many names counts once.
    found = {(status.st_dev, status.st_ino): status.st_size for status in (file.stat() for file in files)}
    if pixels > MOST_EXPANSION * sum(found.values()):
        raise DataError(f"{size} would be more than {MOST_EXPANSION} times as large as their files: {remedy}")


def find_images(path: Path, side: str = "", part: str = "train") -> Images:
    """The images of a folder; they have one channel where all of them are grey.

    side: all are scaled to this many pixels each way; without it they must be of one size. Where the folder has a
    subfolder ``train``, the classes are below that and, of the test part, below ``test``.
    """
    if side and not (side.isascii() and side.isdigit() and 1 <= int(side[:9]) <= MAX_SIDE):
        raise InvalidInput(f"{path}: a side has 1 to {MAX_SIDE} pixels, not {side!r}: write photos#64")
    train, test = path / "train", path / "test"
    parted = train.is_dir()
    if part == "test" and not (parted and test.is_dir()):
        raise MissingData(f"{path}: has no test part: there are no subfolders train and test")
    files = _files(train if parted else path)
    names = class_order(name for name, _ in files)
    chosen = _files(test) if part == "test" else files
    with faults_of(path):
        labels, names = number_labels([name for name, _ in chosen], names)
        paths = tuple(file for _, file in chosen)
        return Images(paths, labels, names, _common_shape(paths, int(side or 0)))


def point_out_empty_classes(path: Path) -> None:
    """Whoever made such a folder may think that it is a class."""
    folder = train if (train := path / "train").is_dir() else path
    for below in _visible(folder):
        if below.is_dir() and next(_visible(below), None) is None:
            warnings.warn(f"{below} holds no images, and so it is no class: fill it, or take it away", stacklevel=2)


def _files(folder: Path) -> list[tuple[str, Path]]:
    """(class, image) in one order on every machine; hidden files are left out."""
    found = []
    for below in _visible(folder):
        if not below.is_dir():
            raise DataError(
                f"{below} is no folder, and {folder} was read as a folder of images: only folders may lie in it, one "
                "for each class"
            )
        for file in _visible(below):
            if file.suffix.lower() not in FORMATS or not file.is_file():
                raise _no_image(file)
            found.append((below.name, file))
    if not found:
        raise DataError(f"{folder}: there are no images in it; training needs a folder for each class")
    return found


def _no_image(file: Path) -> DataError:
    return DataError(f"{file}: not an image of a known kind ({', '.join(FORMATS)})")


def _visible(folder: Path) -> Iterator[Path]:
    """All but hidden files, and those that Windows leaves in every folder of images."""
    left_out = ("thumbs.db", "desktop.ini")
    return (p for p in sorted(folder.iterdir()) if not p.name.startswith(".") and p.name.lower() not in left_out)


def _common_shape(files: tuple[Path, ...], side: int) -> tuple[int, int, int]:
    pillow = _pillow()
    headers = [_header(pillow, file) for file in files]
    channels = 1 if all(mode in _GREY for _, mode in headers) else 3
    size = (side, side) if side else headers[0][0]
    for file, (own, _) in zip(files, headers, strict=True):
        if not side and own != size:
            raise DataError(
                f"{file} has {own[0]} x {own[1]} pixels, and {files[0].name} has {size[0]} x {size[1]}: scale them all "
                "to one size by adding it to the path, as in photos#64"
            )
    return channels, size[1], size[0]


def _header(pillow: ModuleType, file: Path) -> tuple[tuple[int, int], str]:
    try:
        with pillow.open(file, formats=[FORMATS[file.suffix.lower()]]) as image:
            size, mode = image.size, image.mode
    except Exception as error:  # whatever a decoder makes of a file that may be from anybody
        raise DataError(f"{file}: not a readable image ({error})") from error
    if size[0] * size[1] > MAX_PIXELS:
        raise DataError(f"{file}: has {size[0]} x {size[1]} pixels; the limit is {MAX_PIXELS} in all")
    if mode not in (*_GREY, *_COLOUR):
        raise DataError(f"{file}: its pixels are of kind {mode}; convert it to 8 bits, grey or colour")
    return size, mode


def _decoded(pillow: ModuleType, file: Path, channels: int, height: int, width: int) -> np.ndarray:
    """uint8, [channels, height, width]."""
    size = width, height
    try:
        with pillow.open(file, formats=[FORMATS[file.suffix.lower()]]) as image:
            plain = image.convert("L" if channels == 1 else "RGB")
    except Exception as error:
        raise DataError(f"{file}: not a readable image ({error})") from error
    if plain.size != size:
        plain = plain.resize(size, pillow.Resampling.BILINEAR)
    pixels: np.ndarray = np.asarray(plain, np.uint8).reshape(height, width, channels).transpose(2, 0, 1)
    return pixels


def _pillow() -> Any:
    try:
        from PIL import Image
    except ImportError:
        raise DataError("images need Pillow: pip install pillow") from None
    return Image
