"""``pacbayes reproduce``: rows are run once, and listed with what they gave."""

import pytest

HEADLINE = """
title = "The best"
source = "table 9"
kind = "headline"
[[rows]]
row = "digits"
of = { experiment = "tiny", row = "S lbd" }
"""


@pytest.fixture
def reproduce(tmp_path, tiny_text, pacbayes_main):
    files = tmp_path / "files"
    files.mkdir()
    (files / "tiny.toml").write_text(tiny_text)
    (files / "best.toml").write_text(HEADLINE)
    places = ("--folder", files, "--results", tmp_path / "results", "--work", tmp_path / "work")
    return lambda *arguments: pacbayes_main("reproduce", *arguments, *places)


def test_rows_are_listed_with_their_results(reproduce, tmp_path):
    assert "0 of 2 rows have results" in reproduce("--list").out
    result = reproduce("tiny", "--rows", "S lbd", "--schedule", "short", "--seed", "3")
    assert result.status == 0 and str(tmp_path / "results" / "tiny.jsonl") in result.out
    everything = reproduce().out
    assert "A trial (table 0)" in everything
    assert "1 of 2 rows have results" in everything and "1 of 1 rows have results" in everything
    first, second = reproduce("tiny", "--list").out.splitlines()
    assert first.split() == ["G", "invKL", "not", "run"]
    assert second.startswith("S lbd") and second.endswith("(short, seed 3)")
    # A row of table 3 stands for the row that it is about.
    assert reproduce("best", "--list").out.split()[1:] == second.split()[2:]


def test_an_experiment_or_a_row_that_is_not_there_is_named_with_the_choices(reproduce):
    result = reproduce("large", "--list")
    assert result.status == 1 and "best, tiny" in result.err
    result = reproduce("--rows", "S lbd")
    assert result.status == 1 and "--rows would be ignored: give the ID" in result.err
    result = reproduce("tiny", "--rows", "G")
    assert result.status == 1 and "G invKL, S lbd" in result.err


def test_an_interruption_says_that_the_same_command_goes_on(reproduce, monkeypatch):
    def interrupted(*_, **__):
        raise KeyboardInterrupt

    monkeypatch.setattr("pacbayes.cli.reproduce.reproduce_rows", interrupted)
    result = reproduce("tiny")
    assert result.status == 130 and result.err.endswith("interrupted; the same command goes on\n")
