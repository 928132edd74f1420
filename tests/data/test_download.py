import gzip
import hashlib
import io
import sys
import tarfile

import pytest

from pacbayes.data import download as module
from pacbayes.data.download import download, unpack
from pacbayes.errors import DataError


def sha256(raw):
    return hashlib.sha256(raw).hexdigest()


def test_a_file_with_the_right_hash_arrives(tmp_path, server):
    folder, address = server
    (folder / "a.gz").write_bytes(b"contents")
    path = download(address + "a.gz", sha256(b"contents"), tmp_path / "new" / "cache")
    assert path == tmp_path / "new" / "cache" / "a.gz" and path.read_bytes() == b"contents"


def test_a_file_with_another_hash_is_refused_and_leaves_nothing(tmp_path, server):
    folder, address = server
    (folder / "a.gz").write_bytes(b"contents")
    with pytest.raises(DataError, match=r"downloading http://127.0.0.1.*a.gz failed.*hash"):
        download(address + "a.gz", sha256(b"other"), tmp_path / "cache")
    assert list((tmp_path / "cache").iterdir()) == []


def test_no_such_page_and_no_network(tmp_path, server):
    _, address = server
    with pytest.raises(DataError, match="404"):
        download(address + "none.gz", sha256(b""), tmp_path)
    with pytest.raises(DataError, match="failed"):
        download("http://127.0.0.1:1/a.gz", sha256(b""), tmp_path)


def test_without_pooch_the_message_says_what_to_install(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "pooch", None)
    with pytest.raises(DataError, match="pip install pooch"):
        download("http://127.0.0.1:1/a.gz", sha256(b""), tmp_path)


def make_tar(path, members):
    """members: (TarInfo, contents)."""
    with tarfile.open(path, "w:gz") as tar:
        for info, raw in members:
            info.size = len(raw)
            tar.addfile(info, io.BytesIO(raw))
    return path


def link(name, target):
    info = tarfile.TarInfo(name)
    info.type, info.linkname = tarfile.SYMTYPE, target
    return info


def test_only_the_named_files_are_unpacked(tmp_path):
    out = tmp_path / "out"
    out.mkdir()
    members = [
        (tarfile.TarInfo("batches/a.bin"), b"A"),
        (tarfile.TarInfo("../../b.bin"), b"B"),
        (tarfile.TarInfo("batches/extra.txt"), b"no"),
        (tarfile.TarInfo("/tmp/extra.bin"), b"no"),
        (link("batches/link", "/etc"), b""),
    ]
    unpack(make_tar(tmp_path / "a.tar.gz", members), ["a.bin", "b.bin"], out)
    assert {path.name: path.read_bytes() for path in out.iterdir()} == {"a.bin": b"A", "b.bin": b"B"}


def test_a_link_does_not_stand_for_a_file(tmp_path):
    out = tmp_path / "out"
    out.mkdir()
    with pytest.raises(DataError, match="does not hold a.bin"):
        unpack(make_tar(tmp_path / "a.tar.gz", [(link("a.bin", "/etc/hostname"), b"")]), ["a.bin"], out)
    assert list(out.iterdir()) == []


def test_large_members_are_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(module, "MAX_MEMBER_BYTES", 3)
    archive = make_tar(tmp_path / "a.tar.gz", [(tarfile.TarInfo("a.bin"), b"1234")])
    with pytest.raises(DataError, match="announces 4 bytes"):
        unpack(archive, ["a.bin"], tmp_path)
    assert not (tmp_path / "a.bin").exists()


def test_damaged_archives_are_refused_and_leave_no_partial_file(tmp_path):
    out = tmp_path / "out"
    out.mkdir()
    archive = tmp_path / "a.tar.gz"
    make_tar(archive, [(tarfile.TarInfo("a.bin"), bytes(range(256)) * 400)])
    whole = gzip.decompress(archive.read_bytes())
    for raw in (b"", b"hello", archive.read_bytes()[:100], gzip.compress(whole[:50_000])):
        archive.write_bytes(raw)
        with pytest.raises(DataError, match=r"a\.tar\.gz"):
            unpack(archive, ["a.bin"], out)
        assert list(out.iterdir()) == []
