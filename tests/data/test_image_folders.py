"""Folders of images: pixels, classes and sizes; files from anybody do no more than fail."""

import math
import struct
import zlib
from contextlib import suppress

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image

from pacbayes.data import image_folders, load, load_inputs, store
from pacbayes.data.image_folders import read_image_folder
from pacbayes.errors import DataError, InvalidInput, MissingData


def image(path, pixels, **options):
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(np.asarray(pixels, np.uint8)).save(path, **options)
    return path


def random_pixels(*shape, seed=0):
    return np.random.default_rng(seed).integers(0, 256, shape, np.uint8)


@pytest.fixture
def photos(tmp_path):
    """Two classes, three grey images of 3 x 5."""
    for name, seed in (("dog/1.png", 1), ("cat/2.png", 2), ("cat/1.png", 3)):
        image(tmp_path / "photos" / name, random_pixels(3, 5, seed=seed))
    return tmp_path / "photos"


def expected(pixels):
    return ((np.asarray(pixels, np.float64) / 255 - 0.5) / 0.25).astype(np.float32)


def test_pixels_classes_and_order(photos):
    data = load(photos)
    assert data.shape == (1, 3, 5) and data.class_names == ("cat", "dog") and data.name == "photos"
    assert data.y.tolist() == [0, 0, 1]
    for x, seed in zip(data.x, (3, 2, 1), strict=True):
        assert np.array_equal(x[0].numpy(), expected(random_pixels(3, 5, seed=seed)))


def test_one_image_in_colour_makes_all_of_them_so(photos):
    colours = random_pixels(3, 5, 3)
    image(photos / "dog" / "2.bmp", colours)
    data = load(photos)
    assert data.shape == (3, 3, 5)
    assert np.array_equal(data.x[3].numpy(), expected(colours.transpose(2, 0, 1)))
    assert np.array_equal(data.x[0, 0].numpy(), data.x[0, 2].numpy())


def test_other_sizes_are_refused_or_scaled(photos):
    image(photos / "dog" / "2.png", np.full((8, 8), 200))
    with pytest.raises(DataError, match=r"2.png has 8 x 8 pixels, and 1.png has 5 x 3: .*photos#64"):
        load(photos)
    data = load(f"{photos}#4")
    assert data.shape == (1, 4, 4) and np.allclose(data.x[3].numpy(), expected(200))
    assert load_inputs(f"{photos}#4").shape == (4, 1, 4, 4)
    for side in ("0", "big", "99999", "\u0664"):
        with pytest.raises(InvalidInput, match="a side has 1 to 4096 pixels"):
            load(f"{photos}#{side}")


def test_train_and_test_parts(tmp_path):
    for part, names in (("train", "0 2 10"), ("test", "10 2")):
        for name in names.split():
            image(tmp_path / part / name / "a.png", random_pixels(2, 2))
    assert load(tmp_path).class_names == ("0", "2", "10")
    test = load(tmp_path, "test")
    assert test.y.tolist() == [2, 1] and test.classes == 3
    (tmp_path / "test" / "0").mkdir()  # which changes nothing
    assert load(tmp_path, "test").y.tolist() == [2, 1]
    image(tmp_path / "test" / "7" / "a.png", random_pixels(2, 2))
    with pytest.raises(DataError, match="label '7' is not one of the classes"):
        load(tmp_path, "test")


def test_no_test_part(photos):
    with pytest.raises(MissingData, match="no test part"):
        load(photos, "test")


def test_a_changed_folder_is_read_again(photos):
    load(photos)
    image(photos / "eel" / "1.png", random_pixels(3, 5))
    assert load(photos).classes == 3


def test_hidden_files_are_left_out_and_others_named(photos):
    (photos / "cat" / ".DS_Store").write_bytes(b"x")
    (photos / ".git").mkdir()
    assert len(load(photos)) == 3
    (photos / "cat" / "notes.txt").write_text("x")
    with pytest.raises(DataError, match="notes.txt: not an image of a known kind"):
        load(photos)
    (photos / "cat" / "notes.txt").unlink()
    (photos / "README").write_text("x")
    with pytest.raises(DataError, match="README is no folder.*only folders may lie in it"):
        load(photos)


def test_empty_folders(tmp_path):
    with pytest.raises(DataError, match="no images"):
        load(tmp_path)
    image(tmp_path / "cat" / "1.png", random_pixels(2, 2))
    with pytest.raises(DataError, match="classes must be at least 2"):
        load(tmp_path)
    image(tmp_path / "dog" / "1.png", random_pixels(2, 2))
    (tmp_path / "emu").mkdir()
    with pytest.warns(UserWarning, match="emu holds no images, and so it is no class"):
        assert load(tmp_path).class_names == ("cat", "dog")


def png(width: int, height: int, body: bytes = b"") -> bytes:
    """A PNG that says what it likes about its size."""

    def chunk(kind: bytes, content: bytes) -> bytes:
        return struct.pack(">I", len(content)) + kind + content + struct.pack(">I", zlib.crc32(kind + content))

    header = struct.pack(">IIBBBBB", width, height, 8, 0, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", body) + chunk(b"IEND", b"")


@pytest.mark.filterwarnings("ignore:Image size")
def test_bombs_are_refused_before_they_are_unpacked(photos):
    for side in (9000, 60_000, 2**31 - 1):
        (photos / "cat" / "3.png").write_bytes(png(side, side, zlib.compress(b"\0" * 10_000)))
        with pytest.raises(DataError, match="3.png"):
            load(f"{photos}#8")


def test_all_together_are_bounded(photos, monkeypatch):
    monkeypatch.setattr(image_folders, "MAX_BYTES", 100)
    with pytest.raises(DataError, match="3 images of 5 x 3 pixels would take more than 100 bytes"):
        load(photos)


def test_small_files_are_not_scaled_up_without_limit(photos, tmp_path, monkeypatch):
    monkeypatch.setattr(image_folders, "UNPACKED_BYTES", 1000)
    size = sum(file.stat().st_size for file in photos.rglob("*.png"))
    side = math.isqrt(100 * size // 3)
    assert load(f"{photos}#{side}").shape == (1, side, side)
    (photos / "dog" / "2.png").symlink_to(photos / "dog" / "1.png")  # no more bytes
    for read in (load, load_inputs):
        with pytest.raises(DataError, match="would be more than 100 times as large as their files: "):
            read(f"{photos}#{side}")
    assert len(store(f"{photos}#{side}", tmp_path / "stored")) == 4


@pytest.mark.parametrize(
    "content", [b"", b"GIF89a", png(5, 3), png(5, 3, b"x"), png(5, 3, zlib.compress(b"\0" * 18))[:-30]]
)
def test_damaged_images_are_named(photos, content):
    (photos / "cat" / "3.png").write_bytes(content)
    with pytest.raises(DataError, match="3.png: not a readable image"):
        load(photos)


def test_a_name_does_not_choose_the_decoder(photos):
    """A file is decoded as what its name says, or not at all: the rare decoders of Pillow are out of reach."""
    image(photos / "cat" / "3.tiff", random_pixels(3, 5)).rename(photos / "cat" / "3.png")
    with pytest.raises(DataError, match="3.png: not a readable image"):
        load(photos)


def test_deep_pixels_are_refused(photos):
    Image.fromarray(np.zeros((3, 5), np.uint16)).save(photos / "cat" / "3.png")
    with pytest.raises(DataError, match="convert it to 8 bits"):
        load(photos)


@settings(max_examples=100, deadline=None)
@given(st.sampled_from([".png", ".jpg", ".bmp", ".webp", ".ppm"]), st.binary(max_size=60), st.integers(0, 200))
def test_any_bytes_are_data_or_a_clear_error(tmp_path_factory, suffix, noise, place):
    folder = tmp_path_factory.mktemp("fuzz")
    whole = image(folder / "cat" / f"1{suffix}", random_pixels(8, 8, 3)).read_bytes()
    image(folder / "dog" / "1.png", random_pixels(8, 8, 3))
    (folder / "cat" / f"1{suffix}").write_bytes(whole[:place] + noise + whole[place + len(noise) :])
    with suppress(DataError):
        assert read_image_folder(folder).x.isfinite().all()
