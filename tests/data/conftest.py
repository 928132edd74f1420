"""Small files in the published formats, and an environment without anybody's datasets."""

import gzip
import pickle
import struct
import threading
from collections.abc import Callable, Iterator
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import numpy as np
import pytest


@pytest.fixture(autouse=True)
def no_datasets_at_hand(monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory) -> None:
    monkeypatch.delenv("PACBAYES_DATA", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path_factory.mktemp("cache")))
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")


def idx_bytes(values: np.ndarray) -> bytes:
    header = bytes([0, 0, 8, values.ndim]) + struct.pack(f">{values.ndim}I", *values.shape)
    return header + values.astype(np.uint8).tobytes()


@pytest.fixture
def write_idx() -> Callable[[Path, np.ndarray], Path]:
    """Writes an array as an IDX file, gzipped where the name ends in .gz."""

    def write(path: Path, values: np.ndarray) -> Path:
        path.parent.mkdir(parents=True, exist_ok=True)
        raw = idx_bytes(values)
        path.write_bytes(gzip.compress(raw, 1, mtime=0) if path.suffix == ".gz" else raw)
        return path

    return write


def python2_batch(pixels: np.ndarray, labels: np.ndarray) -> bytes:
    """The opcodes Python 2 wrote: protocol 2, byte strings, and numpy's old module names."""

    def text(value: str) -> bytes:
        return b"U" + bytes([len(value)]) + value.encode()

    flat = pixels.reshape(len(pixels), -1)
    shape = b"J" + struct.pack("<i", flat.shape[0]) + b"M" + struct.pack("<H", flat.shape[1]) + b"\x86q\x09"
    dtype = b"cnumpy\ndtype\nq\x0a" + text("u1") + b"K\x00K\x01\x87q\x0bRq\x0c"
    dtype += b"(K\x03" + text("|") + b"NNNJ\xff\xff\xff\xffJ\xff\xff\xff\xffK\x00tb"
    array = b"cnumpy.core.multiarray\n_reconstruct\nq\x03cnumpy\nndarray\nq\x04K\x00\x85q\x05" + text("b")
    array += b"\x87q\x07Rq\x08(K\x01" + shape + dtype + b"\x89T" + struct.pack("<i", flat.size) + flat.tobytes()
    array += b"tb"
    numbers = b"]q\x0d(" + b"".join(b"K" + bytes([label]) for label in labels) + b"e"
    return b"\x80\x02}q\x01(" + text("data") + array + text("labels") + numbers + b"u."


@pytest.fixture
def encode_batch() -> Callable[[np.ndarray, np.ndarray, str], bytes]:
    """Encodes pixels [m, 3, 32, 32] and labels [m] as "binary", "python2", or "protocol N" of today."""

    def encode(pixels: np.ndarray, labels: np.ndarray, form: str) -> bytes:
        if form == "binary":
            return np.hstack([labels[:, None], pixels.reshape(len(pixels), -1)]).astype(np.uint8).tobytes()
        if form == "python2":
            return python2_batch(pixels, labels)
        batch = {
            b"data": pixels.reshape(len(pixels), -1),
            b"labels": labels.tolist(),
            b"filenames": [b"a.png"],
        }
        return pickle.dumps(batch, protocol=int(form.removeprefix("protocol ")))

    return encode


@pytest.fixture
def images() -> Callable[..., tuple[np.ndarray, np.ndarray]]:
    """Random pixels, uint8 [m, *shape], and labels 0..9, each of which occurs if m >= 10."""

    def make(m: int, shape: tuple[int, ...], seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
        generator = np.random.default_rng(seed)
        return generator.integers(0, 256, (m, *shape), np.uint8), (np.arange(m) % 10).astype(np.uint8)

    return make


class Quiet(SimpleHTTPRequestHandler):
    def log_message(self, *args: object) -> None:
        pass


@pytest.fixture
def server(tmp_path: Path) -> Iterator[tuple[Path, str]]:
    """A web server on this machine: the folder it serves, and its address."""
    folder = tmp_path / "served"
    folder.mkdir()
    with ThreadingHTTPServer(("127.0.0.1", 0), partial(Quiet, directory=folder)) as http:
        thread = threading.Thread(target=http.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield folder, f"http://127.0.0.1:{http.server_port}/"
        http.shutdown()
        thread.join()
