from pathlib import Path

from pacbayes.data.folders import cache_folder, data_folders, find_file


def test_order_is_argument_environment_cache(tmp_path, monkeypatch):
    assert data_folders() == [cache_folder()]
    monkeypatch.setenv("PACBAYES_DATA", str(tmp_path / "b"))
    assert data_folders(tmp_path / "a") == [tmp_path / "a", tmp_path / "b", cache_folder()]
    monkeypatch.setenv("PACBAYES_DATA", "")
    assert data_folders() == [cache_folder()]


def test_home_is_expanded(monkeypatch):
    monkeypatch.setenv("PACBAYES_DATA", "~/sets")
    assert data_folders()[0] == Path.home() / "sets"


def test_cache_folder(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert cache_folder() == tmp_path / "pacbayes"
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert cache_folder() == tmp_path / ".cache" / "pacbayes"


def test_earlier_places_win_then_earlier_names(tmp_path):
    first, second = tmp_path / "1", tmp_path / "2"
    (first / "a").mkdir(parents=True)  # a folder is not a file
    second.mkdir()
    for path in (first / "b", second / "a", second / "b"):
        path.write_bytes(b"")
    assert find_file(["a", "b"], [tmp_path / "0", first, second]) == first / "b"
    assert find_file(["a", "b"], [second, first]) == second / "a"
    assert find_file(["c"], [first, second]) is None
