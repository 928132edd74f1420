"""What the page shows of real runs: mistakes, classes, the affine check; and what it leaves out."""

from __future__ import annotations

import base64
import io
import json
import re
import xml.etree.ElementTree as ET
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

import pacbayes as pb
from pacbayes.errors import RunError
from pacbayes.report import examination, write_report
from pacbayes.report.affine import affine_svgs
from pacbayes.report.bars import Bar, bars_svg, bounds_bars
from pacbayes.report.mistakes import find_mistakes, png
from pacbayes.runs import Evaluation
from pacbayes.runs.journal import note
from pacbayes.training.affine import affine_check


@pytest.mark.parametrize("channels", [1, 3])
def test_the_pictures_are_png_files_of_these_levels(channels):
    levels = np.random.default_rng(0).integers(0, 256, (channels, 5, 7), dtype=np.uint8)
    read = np.asarray(Image.open(io.BytesIO(png(levels))))
    assert np.array_equal(read.reshape(5, 7, channels).transpose(2, 0, 1), levels)


def test_the_mistakes_are_those_of_the_network():
    # A network that always answers 1, and examples of which three are of other classes.
    model = torch.nn.Linear(2, 3)
    torch.nn.init.zeros_(model.weight)
    model.bias.data = torch.tensor([0.0, 9.0, 0.0])
    net = pb.stochastic(model, 1e-6)
    data = pb.Data(torch.ones(6, 2), torch.tensor([1, 0, 1, 2, 1, 0]), 3, class_names=("a", "b", "c"))
    found = find_mistakes(net, data, "test", draws=5, sampling="shared")
    assert [(m.index, m.label, m.answer, m.share) for m in found.worst] == [
        (1, "a", "b", 1.0), (3, "c", "b", 1.0), (5, "a", "b", 1.0),
    ]  # fmt: skip
    assert found.mostly_wrong == 3 and found.looked_at == 6 and found.worst[0].features == ("1", "1")
    assert find_mistakes(net, data.take(np.array([0, 2])), "test", draws=5, sampling="mean").worst == ()


def test_images_that_are_mistaken_stand_in_the_page(image_run):
    text = write_report(image_run).read_text("utf-8")
    uris = re.findall(r'<img src="data:image/png;base64,([^"]+)"', text)
    assert len(uris) == text.count("<img") == 12
    assert all(Image.open(io.BytesIO(base64.b64decode(uri))).size == (8, 8) for uri in uris)
    assert "taken for" in text and "among the first 360 test examples" in text
    # Decomposition, bounds, classes, three curves and two of the affine check.
    assert text.count("<svg") == 8
    assert "Is the training's gradient sound?" in text and text.count('scope="row"') == 10


def test_no_example_stands_in_a_page_for_others(image_run, table_run):
    for run in (image_run, table_run):
        text = write_report(run, examples=False).read_text("utf-8")
        assert "<img" not in text and "Where it errs" not in text and "taken for <" not in text


def test_other_data_are_shown_as_features_and_of_the_bound_data_if_there_are_no_others(table_run):
    text = write_report(table_run).read_text("utf-8")
    assert "x[5]</th>" in text and "x[6]" not in text and "<img" not in text
    assert "examples of the bound data, for there is no test part" in " ".join(text.split())


def test_data_that_are_not_at_hand_leave_the_rest_of_the_page(table_run, tmp_path):
    where = tmp_path / "moved.npz"
    Path(table_run.config().data).rename(where)
    try:
        with pytest.warns(UserWarning, match="shows neither examples nor the affine check: "):
            text = write_report(table_run).read_text("utf-8")
        assert "Where it errs" not in text and "How the number is made up" in text
        with pytest.warns(UserWarning, match="shows no affine check: "):
            write_report(table_run, examples=False)
        assert "Where it errs" in write_report(table_run, data=str(where)).read_text("utf-8")
        # A place that was named must hold the data.
        np.savez(tmp_path / "other.npz", x=np.ones((20, 9)), y=np.arange(20) % 3)
        with pytest.raises(RunError, match="are not those"):
            write_report(table_run, data=str(tmp_path / "other.npz"))
    finally:
        where.rename(table_run.config().data)


def test_the_same_run_gives_the_same_bytes(image_run):
    first = write_report(image_run).read_bytes()
    assert write_report(image_run).read_bytes() == first


def test_what_would_take_long_is_left_out(image_run, monkeypatch):
    monkeypatch.setattr(examination, "_MOST_OPERATIONS", 1e7)
    seen = examination.examine(image_run, image_run.certificate())
    assert seen.affine is None and 1 <= seen.mistakes.looked_at < 360


@pytest.mark.parametrize("change", [{"bounds": [[0.0] * 10] * 10}, {"posterior_fingerprint": "0" * 64}])
def test_classes_that_do_not_hold_are_refused(image_run, change):
    path = image_run.path / "classes.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | change))
    note(image_run, "classes certified")
    with pytest.raises(RunError, match="does not hold for this network"):
        write_report(image_run)


def test_the_bounds_side_by_side(new_certificate, image_run):
    alone = bounds_bars(new_certificate(), Evaluation(None, None, 0, 0, None))
    assert [bar.label for bar in alone] == ["This certificate"]
    certificate = image_run.certificate()
    bars = {bar.label: bar.value for bar in bounds_bars(certificate, Evaluation(None, None, 0, 0, 0.5))}
    assert bars["This certificate"] == certificate.risk_bound == bars["Best, all together"]
    assert bars["Plain hold-out"] == 0.5 and len(bars) == 9


def test_bars_say_in_words_what_they_show():
    root = ET.fromstring(bars_svg("b", "Bars", [Bar("one", 0.5, "50 %"), Bar("none", 0.0, "0 %")]))
    assert root.findtext("{http://www.w3.org/2000/svg}desc") == "one: 50 %; none: 0 %."


def test_the_affine_pictures_are_xml_and_keep_inside(image_run):
    found = affine_check(image_run.network(), image_run.data().bound, 20, 0, 0.025)
    for _, svg in affine_svgs(found):
        root = ET.fromstring(svg)
        for item in root.iter():
            for name, most in (("x", 360), ("x1", 360), ("cx", 360), ("y", 230), ("y1", 230), ("cy", 230)):
                assert 0 <= float(item.attrib.get(name, 0)) <= most
        for line in root.iter("{http://www.w3.org/2000/svg}polyline"):
            places = [tuple(map(float, point.split(","))) for point in line.attrib["points"].split()]
            assert len(places) > 1 and all(61 <= x <= 345 and 33 <= y <= 189 for x, y in places)
