from __future__ import annotations

import json
import re
import subprocess
import sys
import xml.etree.ElementTree as ET
from dataclasses import fields, replace
from html.parser import HTMLParser

import pytest

from pacbayes.certificates import Certificate
from pacbayes.errors import PacBayesError, RunError
from pacbayes.report import write_report
from pacbayes.report.explanations import explained
from pacbayes.runs import Config, Evaluation
from pacbayes.runs.journal import note
from pacbayes.training import Settings

VOID = {"meta", "br", "hr", "img", "link", "input"}
HOSTILE = "</pre></style><script>alert(1)</script><img src=http://evil.example/x onerror=alert(1)>'\"&"

# These folders have no data beside them.
pytestmark = pytest.mark.filterwarnings("ignore:the page shows neither examples")


class Page(HTMLParser):
    """Follows the nesting of the tags, and keeps the names, attributes and words."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.tags: list[str] = []
        self.attributes: list[tuple[str, str | None]] = []
        self.words: list[str] = []
        self.feed(text)
        self.close()
        assert not self.open, f"not closed: {self.open}"

    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)
        self.attributes += attrs
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag, attrs):
        self.tags.append(tag)
        self.attributes += attrs

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        self.words.append(data)

    @property
    def text(self) -> str:
        return " ".join(" ".join(self.words).split())


def read(run) -> tuple[str, Page]:
    text = write_report(run).read_text("utf-8")
    return text, Page(text)


def pictures(text: str) -> list[ET.Element]:
    return [ET.fromstring(svg) for svg in re.findall(r"<svg.*?</svg>", text, re.DOTALL)]


def test_the_page_says_what_the_certificate_says(new_run, new_certificate):
    certificate = new_certificate()
    run = new_run(certificate)
    path = write_report(run)
    assert path == run.path / "report.html"
    page = Page(path.read_text("utf-8"))
    assert certificate.sentence() in page.text
    for entry in fields(Certificate):
        assert entry.name in page.text
    for value in (certificate.risk_bound, certificate.penalty, certificate.kl, certificate.posterior_fingerprint):
        assert str(value) in page.text
    assert "pacbayes verify RUN" in page.text and "sha256sum RUN/posterior.safetensors" in page.text
    assert "3.60 ± 0.75 %" in page.text and "≤ 4.15 %" in page.text
    assert " ".join(run.config().to_toml().split()) in page.text


def test_every_entry_of_a_certificate_is_explained_once(new_certificate):
    names = [entry.name for entries in explained(new_certificate()).values() for entry in entries]
    assert sorted(names) == sorted(field.name for field in fields(Certificate))


def test_the_page_is_well_formed_and_loads_nothing(new_run):
    text, page = read(new_run())
    assert text.startswith("<!DOCTYPE html>\n<html lang=")
    assert not {"script", "link", "img", "iframe", "object", "embed", "image", "use", "a", "base"} & set(page.tags)
    names = {name for name, _ in page.attributes}
    assert not {"src", "href", "xlink:href", "srcset", "style"} & names
    assert not [name for name in names if name.startswith("on")]
    assert not re.search(r"url\(|@import|javascript:", text)
    assert set(re.findall(r"https?://[^\"\s]*", text)) == {"http://www.w3.org/2000/svg"}
    assert ("content", "default-src 'none'; style-src 'unsafe-inline'; img-src data:") in page.attributes


def test_the_pictures_are_xml_with_words_for_those_who_do_not_see_them(new_run):
    text, page = read(new_run())
    found = pictures(text)
    assert len(found) == 6
    identifiers = [value for name, value in page.attributes if name == "id"]
    assert len(set(identifiers)) == len(identifiers)
    for svg in found:
        assert svg.attrib["role"] == "img"
        assert all(label in identifiers for label in svg.attrib["aria-labelledby"].split())
        assert all(svg.findtext(f"{{http://www.w3.org/2000/svg}}{tag}") for tag in ("title", "desc"))


def test_hostile_words_stay_words(new_run, new_certificate):
    certificate = new_certificate(
        objective=HOSTILE, time=HOSTILE, prior_fingerprint=HOSTILE, posterior_fingerprint=HOSTILE,
        bound_data_fingerprint=HOSTILE, versions={HOSTILE: HOSTILE, "{{ 7 * 7 }}": "{% raw %}"},
    )  # fmt: skip
    config = Config(data=HOSTILE, data_folder=HOSTILE, device=HOSTILE)
    text, page = read(new_run(certificate, config=config))
    plain = Page(write_report(new_run(name="plain")).read_text("utf-8"))
    assert page.tags == plain.tags
    assert "<script" not in text and "<img" not in text
    assert "{{ 7 * 7 }} {% raw %}" in page.text
    # In the title, the header, the command to verify, and each entry; the configuration quotes its strings.
    assert page.text.count(HOSTILE) == 10


def test_half_characters_do_not_stop_the_page(new_run, new_certificate):
    run = new_run(new_certificate())
    record = json.loads(run.certificate_file.read_text("utf-8")) | {"time": "\ud800 \u0000 \u202e"}
    run.certificate_file.write_text(json.dumps(record), "utf-8")
    note(run, "certified", record["risk_bound"])
    note(run, "evaluated")
    write_report(run).read_text("utf-8")


@pytest.mark.parametrize("evaluation", [None, Evaluation(None, None, 0, 0, None)])
def test_what_is_missing_is_shown_as_not_measured(new_run, evaluation):
    text, page = read(new_run(evaluation=evaluation))
    assert text.count(">not measured<") == 2
    assert "test error was not measured" in page.text and "plain hold-out bound was not measured" in page.text
    assert "None" not in page.text


def test_a_tighter_hold_out_bound_is_admitted(new_run):
    assert "it is the tighter of the two" in read(new_run(evaluation=Evaluation(0.03, 0.01, 9, 9, 0.04)))[1].text
    looser = new_run(evaluation=Evaluation(0.03, 0.01, 9, 9, 0.4), name="looser")
    assert "the certificate is at least as tight" in read(looser)[1].text


def test_a_data_free_run_has_two_curves_and_says_why_there_is_no_hold_out_bound(new_run):
    lines = new_run().history_file.read_text().splitlines(keepends=True)
    history = "".join(line for line in lines if '"posterior"' in line)
    run = new_run(
        history=history, config=Config(prior="data-free"), evaluation=Evaluation(0.1, 0.1, 1, 1, None), name="free"
    )
    text, page = read(run)
    assert len(pictures(text)) == 4
    assert "it is for priors that have learnt from data" in page.text


@pytest.mark.parametrize(
    ("keep", "words"),
    [("best", "epoch 2 of 3, which has the smallest bound"), ("last", "epoch 3 of 3, the last")],
)
def test_the_kept_epoch_is_the_one_configured(new_run, keep, words):
    text, page = read(new_run(config=Config(posterior=Settings(keep=keep))))
    assert words in page.text and f"keep = {keep}" in page.text
    assert text.count(f"epoch {words.split()[1]}, kept") == 2


def test_a_posterior_that_is_the_prior_is_said_to_be_so_and_only_then(new_run):
    words = "No epoch has a smaller bound than the prior itself"
    history = new_run().history_file.read_text()
    as_prior = re.sub(r'"kept": \d', '"kept": -1', history)
    text, page = read(new_run(history=as_prior, name="prior"))
    assert words in page.text and ", kept" not in text
    for name, lines in (("kept", history), ("unknown", re.sub(r', "kept": \d, "kept_bound": [\d.]+', "", history))):
        assert words not in read(new_run(history=lines, name=name))[1].text


def test_no_history_is_said(new_run):
    assert "was not recorded" in read(new_run(history=""))[1].text


def test_the_same_folder_gives_the_same_bytes(new_run):
    first, second = new_run(), new_run(name="elsewhere")
    before = write_report(first).read_bytes()
    assert write_report(first).read_bytes() == before == write_report(second).read_bytes()


@pytest.mark.parametrize(
    "extreme",
    [
        {"errors": 20, "kl": 0.0, "m": 10**7},
        {"errors": 135_000, "kl": 0.0},
        {"errors": 0, "kl": 1e300},
        {"errors": 150_000, "draws": 150_000},
        {"errors": 0, "draws": 1, "m": 8},
    ],
)
def test_extreme_certificates_have_a_page(new_run, new_certificate, extreme):
    text, page = read(new_run(new_certificate(**extreme)))
    assert len(pictures(text)) == 6
    assert not {"nan", "inf"} & set(re.findall(r"[a-z]+", text.lower()))


def test_what_cannot_be_reported_gives_one_line_and_no_page(new_run, new_certificate):
    def refused(run) -> str:
        with pytest.raises(RunError) as caught:
            write_report(run)
        assert not (run.path / "report.html").exists()
        assert "\n" not in str(caught.value)
        return str(caught.value)

    run = new_run(name="none")
    run.certificate_file.unlink()
    assert "there is no certificate" in refused(run)
    run = new_run(name="damaged")
    run.certificate_file.write_text('{"risk_bound": 0.1')
    assert "is not the file that this run wrote" in refused(run)
    run = new_run(replace(new_certificate(), risk_bound=0.001), name="forged")
    assert "does not hold" in refused(run)
    run = new_run(history='{"stage": "posterior", "epo\n', name="history")
    assert "line 1" in refused(run)


@pytest.mark.parametrize("name", ["config.toml", "posterior.safetensors"])
def test_a_changed_run_is_not_reported(new_run, name):
    run = new_run()
    (run.path / name).write_text("data = ")
    with pytest.raises(PacBayesError, match=f"{name} is not the file that this run wrote"):
        write_report(run)
    assert not (run.path / "report.html").exists()


def test_importing_is_quick():
    code = "import sys, pacbayes.report; sys.exit(bool({'jinja2', 'matplotlib'} & set(sys.modules)))"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
