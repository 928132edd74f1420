"""Tables and folders of images in the shell: from the file to a verified certificate and labels."""

import numpy as np
import pytest
from PIL import Image


def table(path, m=60, rare=20):
    """Two classes, "no" in the first rows and "yes" in the last `rare`."""
    x = np.random.default_rng(0).normal(size=(m, 2))
    x[-rare:] += 3
    rows = [f"{a:.4f},{b:.4f},{'no' if i < m - rare else 'yes'}" for i, (a, b) in enumerate(x)]
    path.write_text("\n".join(["a,b,answer", *rows]) + "\n")
    return path


def photos(folder):
    generator = np.random.default_rng(0)
    for name, base in (("dark", 0), ("light", 128)):
        (folder / name).mkdir(parents=True)
        for i in range(20):
            pixels = base + generator.integers(0, 128, (8, 8), np.uint8)
            Image.fromarray(pixels.astype(np.uint8)).save(folder / name / f"{i:02}.png")
    return folder


def test_a_table_from_training_to_labels(pacbayes_main, tmp_path, tiny):
    data = f"{table(tmp_path / 'mine.csv')}#answer"
    run = tmp_path / "run"
    trained = pacbayes_main("train", "--data", data, "--out", run, *tiny)
    assert trained.status == 0, trained.err
    assert "mine: 60 examples of shape 2, 2 classes\nclasses: no 66.7 %, yes 33.3 %\nThe posterior is" in trained.out
    assert pacbayes_main("certify", run, "--draws", 60, "--test-draws", 2).status == 0
    verified = pacbayes_main("verify", run)
    assert verified.status == 0, verified.out
    (tmp_path / "new.csv").write_text("a,b\n0,0\n3,3\n1,1\n")
    predicted = pacbayes_main("predict", run, tmp_path / "new.csv")
    assert predicted.status == 0 and len(predicted.out.splitlines()) == 4, predicted.err
    # By the words of the table, and not by numbers of ours.
    assert {line.split(",")[1] for line in predicted.out.splitlines()[1:]} <= {"no", "yes"}
    # The column of the labels is known.
    (tmp_path / "elsewhere.csv").write_text((tmp_path / "mine.csv").read_text())
    assert pacbayes_main("verify", run, "--data", tmp_path / "elsewhere.csv").status == 0
    # Other data in its place are noticed.
    table(tmp_path / "mine.csv", rare=21)
    assert pacbayes_main("verify", run).status == 1


def test_images_and_other_data_are_found_from_another_folder(pacbayes_main, tmp_path, tiny, monkeypatch):
    """Also where the run has the name of its data, and where the prior has data of its own."""
    monkeypatch.chdir(tmp_path)
    photos(tmp_path / "photos")
    table(tmp_path / "mine.csv")
    table(tmp_path / "other.csv", rare=25)
    lines = (tmp_path / "other.csv").read_text().replace(".", "1.")
    (tmp_path / "other.csv").write_text(lines)
    mine = ("--data", "mine.csv#answer", "--prior-data", "other.csv#answer")
    for name, flags in (("photos", ("--data", "photos#8")), ("table", mine)):
        monkeypatch.chdir(tmp_path)
        trained = pacbayes_main("train", *flags, "--out", f"runs/{name}", *tiny)
        assert trained.status == 0, trained.err
        monkeypatch.chdir("/")
        run = tmp_path / "runs" / name
        assert pacbayes_main("certify", run, "--draws", 60, "--test-draws", 2).status == 0
        verified = pacbayes_main("verify", run)
        assert verified.status == 0 and "passed         split" in verified.out, verified.out
        (tmp_path / flags[1].partition("#")[0]).rename(tmp_path / f"{name} away")
        verified = pacbayes_main("verify", run)  # what is not at hand is no fault of the run
        assert verified.status == 0 and "data                   not at hand" in verified.out, verified.out
        missing = pacbayes_main("certify", run, "--draws", 60)
        assert missing.status == 1 and "--data" in missing.err, missing.err


@pytest.mark.filterwarnings("default:the page shows neither examples")
def test_a_run_finds_its_table_from_another_folder(pacbayes_main, tmp_path, tiny, monkeypatch):
    """Named relatively, as most are: found beside the run folder, or a few folders above it."""
    monkeypatch.chdir(tmp_path)
    table(tmp_path / "mine.csv")
    assert pacbayes_main("train", "--data", "mine.csv#answer", "--out", "runs/first", *tiny).status == 0
    monkeypatch.chdir("/")
    run = tmp_path / "runs" / "first"
    assert pacbayes_main("certify", run, "--draws", 60, "--test-draws", 2).status == 0
    verified = pacbayes_main("verify", run, "--recompute")
    assert verified.status == 0 and "passed         bound data" in verified.out, verified.out
    assert pacbayes_main("report", run).err == ""
    # Another table of that name is not taken for it.
    table(tmp_path / "runs" / "mine.csv", rare=21)
    verified = pacbayes_main("verify", run)
    assert verified.status == 0 and "passed         bound data" in verified.out, verified.out
    (tmp_path / "mine.csv").unlink()
    verified = pacbayes_main("verify", run)
    assert verified.status == 0 and "not at hand" in verified.out, verified.out
    assert "the page shows neither examples" in pacbayes_main("report", run).err


def test_copied_rows_are_pointed_out_in_one_line(process, pacbayes_main, tmp_path, tiny):
    file = table(tmp_path / "mine.csv", m=300)
    lines = file.read_text().splitlines()
    file.write_text("\n".join([*lines, *lines[1:]]) + "\n")
    run = tmp_path / "run"
    trained = process("train", "--data", f"{file}#answer", "--out", run, *tiny)
    # Before the time is spent, and once more where it counts.
    assert trained.status == 0 and trained.err.count("warning: ") == 2, trained.err
    certified = process("certify", run, "--draws", 60, "--test-draws", 2)
    warned = [line for line in certified.err.splitlines() if "warning" in line.lower()]
    assert certified.status == 0 and len(warned) == 2 and all(w.startswith("warning: ") for w in warned), certified.err
    assert "Warning" not in certified.err
    verified = process("verify", run)
    assert verified.status == 0 and verified.out.count("not checkable  copies") == 2, verified.out
    # Whoever reads no terminal reads of it too, and nobody can take it away.
    evaluation = (run / "evaluation.json").read_text()
    (run / "evaluation.json").write_text(evaluation.replace("copies", "nothing"))
    for command in ("report", "card", "compare"):
        refused = pacbayes_main(command, run)
        assert refused.status == 1 and "is not the file that this run wrote" in refused.err
    (run / "evaluation.json").write_text(evaluation)
    assert pacbayes_main("report", run).status == 0
    said = (pacbayes_main(command, run).out for command in ("card", "compare"))
    for shown in ((run / "report.html").read_text("utf-8"), *said):
        assert "there is no valid certificate" in " ".join(shown.split())


def test_one_answer_for_all_that_does_better_is_shown(pacbayes_main, tmp_path, tiny):
    run = tmp_path / "run"
    data = f"{table(tmp_path / 'mine.csv', m=400, rare=12)}#answer"
    assert pacbayes_main("train", "--data", data, "--out", run, *tiny).status == 0
    certified = pacbayes_main("certify", run, "--draws", 400, "--test-draws", 2)
    assert certified.status == 0 and "one answer always" in certified.out, certified.out
    assert "Always answering with the most frequent class would err on" in pacbayes_main("card", run).out


def test_an_imbalance_is_reported(pacbayes_main, tmp_path, tiny):
    data = f"{table(tmp_path / 'mine.csv', rare=6)}#answer"
    result = pacbayes_main("train", "--data", data, "--out", tmp_path / "run", *tiny)
    assert "imbalanced: yes has 6 of 60 examples, and always answering no errs on 10.0 %" in result.out


def test_a_folder_of_images(pacbayes_main, tmp_path, tiny):
    data, run = photos(tmp_path / "photos"), tmp_path / "run"
    result = pacbayes_main("train", "--data", f"{data}#4", "--out", run, *tiny)
    assert result.status == 0 and "photos: 40 examples of shape 1 x 4 x 4, 2 classes" in result.out, result.err
    assert "dark 50.0 %, light 50.0 %" in result.out
    predicted = pacbayes_main("predict", run, f"{data}#4")
    assert predicted.status == 0 and len(predicted.out.splitlines()) == 41
    refused = pacbayes_main("predict", run, f"{data}#4", "--out", data / "labels.csv")
    assert refused.status == 1 and "lies in a folder that is read" in refused.err and not (data / "labels.csv").exists()


def test_images_stored_as_arrays(pacbayes_main, tmp_path, tiny):
    source = f"{photos(tmp_path / 'photos')}#4"
    stored = pacbayes_main("store", source, tmp_path / "stored")
    assert stored.status == 0 and "stored: 40 examples of shape 1 x 4 x 4, 2 classes" in stored.out, stored.err
    result = pacbayes_main("train", "--data", tmp_path / "stored", "--out", tmp_path / "run", *tiny)
    assert result.status == 0 and "dark 50.0 %, light 50.0 %" in result.out, result.err
    # The same examples: a run on the one is verified on the other.
    assert pacbayes_main("certify", tmp_path / "run", "--draws", 60, "--test-draws", 2, "--data", source).status == 0
    again = pacbayes_main("store", source, tmp_path / "stored")
    assert again.status == 1 and len(again.err.splitlines()) == 1 and "is there already" in again.err


@pytest.mark.parametrize(
    ("text", "words"),
    [("a,b\n1,2\n", "label"), ("a,label\nx,1\n", "line 2"), ("a,label\n1,1\n", "classes"), ("", "first line")],
)
def test_a_bad_table_is_one_line(pacbayes_main, tmp_path, tiny, text, words):
    (tmp_path / "bad.csv").write_text(text)
    result = pacbayes_main("train", "--data", tmp_path / "bad.csv", "--out", tmp_path / "run", *tiny)
    assert result.status == 1 and result.out == ""
    assert len(result.err.splitlines()) == 1 and result.err.startswith("error: ") and words in result.err
    assert not (tmp_path / "run").exists()


def test_classes_without_examples_and_a_wrong_test_part_are_said_before_training(tmp_path, process, tiny):
    x, y = np.random.default_rng(0).normal(size=(60, 4)), np.arange(60) % 3
    np.savez(tmp_path / "gaps.npz", x=x, y=2 * y, x_test=x[:10], y_test=np.full(10, 5))
    np.savez(tmp_path / "other.npz", x=x, y=y, x_test=x[:10, :3], y_test=y[:10])
    np.savez(tmp_path / "half.npz", x=x, y=y, x_test=x[:10])
    gaps = ("label 5 is among the test data only", "no example has label 1 or 3: are labels numbered without gaps?")
    unusable = "the test part cannot be used, and there is no test error: "
    for name, said in (
        ("gaps", gaps),
        ("other", [f"{unusable}a test example has shape [3], and a training example [4]"]),
        ("half", [f"{unusable}{tmp_path / 'half.npz'}: has no test part: it holds no array y_test; it needs both"]),
    ):
        err = process("train", "--data", tmp_path / f"{name}.npz", *tiny, "--out", tmp_path / name).err
        assert all(f"warning: {words}" in err for words in said), err
