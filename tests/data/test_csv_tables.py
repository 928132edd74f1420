"""Tables: what a .csv file says, and one clear line for all that is wrong in one."""

import time
import warnings
from contextlib import suppress

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pacbayes.data import csv_tables, load, load_inputs
from pacbayes.errors import DataError, MissingData

FLOWERS = "width,species,height\n1.5,iris,2\n-3e-1,rose,.5\n7,iris,8.\n"


def write(path, text, encoding="utf-8"):
    path.write_bytes(text.encode(encoding))
    return path


def test_the_columns_and_the_names_of_the_classes(tmp_path):
    data = load(f"{write(tmp_path / 'flowers.csv', FLOWERS)}#species")
    assert data.x.tolist() == np.array([[1.5, 2], [-0.3, 0.5], [7, 8]], np.float32).tolist()
    assert data.y.tolist() == [0, 1, 0] and data.class_names == ("iris", "rose") and data.name == "flowers"


def test_the_ending_may_be_in_capitals_and_a_folder_may_have_a_mark_in_its_name(tmp_path):
    (tmp_path / "my#data").mkdir()
    assert len(load(f"{write(tmp_path / 'my#data' / 'FLOWERS.CSV', FLOWERS)}#species")) == 3


@pytest.mark.parametrize("column", ["label", "class", "Target", "y"])
def test_the_usual_names_of_the_label_column_are_known(tmp_path, column):
    data = load(write(tmp_path / "a.csv", f"a,b,{column}\n1,2,0\n3,4,1\n"))
    assert data.x.tolist() == [[1, 2], [3, 4]] and data.y.tolist() == [0, 1]


@pytest.mark.parametrize("separator", [",", ";", "\t"])
@pytest.mark.parametrize("end", ["\n", "\r\n"])
@pytest.mark.parametrize("mark", ["", "\ufeff"])
def test_separators_line_ends_and_marks(tmp_path, separator, end, mark):
    text = mark + FLOWERS.replace(",", separator).replace("\n", end) + end
    data = load(f"{write(tmp_path / 'a.csv', text)}#species")
    assert data.shape == (2,) and data.class_names == ("iris", "rose")


def test_quoted_fields_may_hold_separators_and_line_ends(tmp_path):
    data = load(write(tmp_path / "a.csv", 'x,label\n1,"a, b"\n"2","c\nd"\n'))
    assert data.class_names == ("a, b", "c\nd") and data.x.tolist() == [[1], [2]]


def test_numbers_for_classes_are_in_the_order_of_numbers(tmp_path):
    rows = "".join(f"{i},{label}\n" for i, label in enumerate([10, 9, 2, 10]))
    data = load(write(tmp_path / "a.csv", "x,label\n" + rows))
    assert data.class_names == ("2", "9", "10") and data.y.tolist() == [2, 1, 0, 2]


def test_the_test_part_lies_beside_and_has_the_same_classes(tmp_path):
    train = write(tmp_path / "my-train.csv", "x,label\n1,b\n2,a\n3,c\n")
    write(tmp_path / "my-test.csv", "x,label\n5,c\n")
    test = load(train, "test")
    assert test.y.tolist() == [2] and test.classes == 3 and test.x.tolist() == [[5]]
    write(tmp_path / "my-test.csv", "x,label\n5,d\n")
    with pytest.raises(DataError, match="my-test.csv: label 'd' is not one of the classes a, b, c"):
        load(train, "test")
    with pytest.raises(MissingData, match="no test part"):
        load(write(tmp_path / "a.csv", FLOWERS), "test")


def test_a_file_that_changed_is_read_again(tmp_path):
    path = write(tmp_path / "a.csv", "x,label\n1,a\n2,b\n")
    load(path)
    assert load(write(path, "x,label\n1,a\n2,b\n3,c\n")).classes == 3


def test_columns_are_known_by_their_names(tmp_path):
    train = write(tmp_path / "train.csv", "a,b,label\n1,2,x\n3,4,y\n")
    write(tmp_path / "test.csv", "label,b,note,a\ny,6,7,5\n")
    assert load(train).feature_names == ("a", "b") == load(train).take([0]).feature_names
    assert load(train, "test").x.tolist() == [[5, 6]]
    # Named, they need neither an order nor to know the labels; what else there is does not matter.
    new = write(tmp_path / "new.csv", "id,b,a\nfirst,2,1\n")
    assert load_inputs(new, features=["a", "b"]).tolist() == [[1, 2]]
    with pytest.raises(DataError, match="no column 'c', which the training data have"):
        load_inputs(new, features=["a", "c"])
    write(tmp_path / "test.csv", "label,a,c\ny,6,7\n")
    with pytest.raises(DataError, match=r"test.csv: there is no column 'b'"):
        load(train, "test")


def test_a_measured_quantity_is_no_label(tmp_path):
    rows = "".join(f"{i},{i / 8}\n" for i in range(30))
    with pytest.raises(DataError, match=r"the labels are 30 numbers, such as 0.125: these are no classes"):
        load(f"{write(tmp_path / 'a.csv', 'x,hue' + chr(10) + rows)}#hue")
    stars = load(write(tmp_path / "b.csv", "x,label\n1,1.5\n2,2\n3,2.5\n"))
    assert stars.class_names == ("1.5", "2", "2.5")


@pytest.mark.parametrize(("one", "other"), [("0", "0.0"), ("-0", "0"), ("1.5", "1.50"), ("+7", "007"), ("2", "2.")])
def test_a_number_written_in_two_ways_is_not_two_classes(tmp_path, one, other):
    path = write(tmp_path / "a.csv", f"x,label\n1,{one}\n2,{other}\n3,rose\n")
    with pytest.raises(DataError, match="a.csv: the labels '.*' and '.*' are the same number: write it in one way"):
        load(path)


def test_numbers_that_differ_in_the_last_digit_are_two_classes(tmp_path):
    long = 10**17
    assert load(write(tmp_path / "a.csv", f"x,label\n1,{long}\n2,{long + 1}\n")).classes == 2


def test_truths_are_one_and_zero(tmp_path):
    data = load(write(tmp_path / "a.csv", "new,label\nTrue,True\nFalse,False\n"))
    assert data.x.tolist() == [[1], [0]] and data.class_names == ("False", "True")


def test_inputs_need_no_labels(tmp_path):
    path = write(tmp_path / "a.csv", FLOWERS)
    assert load_inputs(f"{path}#species").tolist() == load(f"{path}#species").x.tolist()
    bare = write(tmp_path / "b.csv", "width,height\n1,2\n")
    assert load_inputs(bare).tolist() == [[1, 2]] == load_inputs(f"{bare}#species").tolist()
    assert load_inputs(write(tmp_path / "c.csv", "x,label\n1,\n")).tolist() == [[1]]


BAD = {
    "an empty file": ("", "first line that names the columns"),
    "no example": ("x,label\n\n", "no examples"),
    "no header": ("5.1,3.5,rose\n4.9,3.0,iris\n", "no column is called one of label.*are 5.1, 3.5, rose: if these"),
    "two label columns": ("label,y,x\n1,2,3\n", "more than one column"),
    "a column without a name": (",x,label\n0,2,3\n", "column 1 has no name"),
    "two columns of a name": ("x,x,label\n1,2,3\n", "two columns are called 'x'"),
    "a word for a number": ("x,label\n1,a\ntall,b\n", "line 3, column 'x' holds 'tall'"),
    "a gap": ("x,z,label\n1,,a\n", "line 2, column 'z' is empty"),
    "nan": ("x,label\nnan,a\n", "line 2, column 'x' holds 'nan'"),
    "infinity": ("x,label\n1e999,a\n", "holds '1e999'"),
    "beyond float32": ("x,label\n1e39,a\n", "fits float32"),
    "underscores": ("x,label\n1_000,a\n", "holds '1_000'"),
    "digits of another script": ("x,label\n\u0661,a\n", "not a number"),
    "a decimal comma": ("x;label\n1,5;a\n", "line 2, column 'x' holds '1,5': write decimal points"),
    "code": ("x,label\n__import__('os').getcwd(),a\n", "__import__"),
    "too few fields": ("x,z,label\n1,a\n", "line 2 has 2 fields, and the first line names 3"),
    "no label": ("x,label\n1,\n", "line 2 has no label"),
    "one class": ("x,label\n1,a\n2,a\n", "classes must be at least 2"),
    "an open quote": ('x,label\n1,"a\n2,b\n', "not a readable .csv file"),
}


@pytest.mark.parametrize("case", BAD)
def test_what_is_wrong_is_said_with_its_place(tmp_path, case):
    text, words = BAD[case]
    with pytest.raises(DataError, match=f"a.csv: .*{words}") as caught:
        load(write(tmp_path / "a.csv", text))
    assert "\n" not in str(caught.value)


def test_files_that_are_no_text(tmp_path):
    for content in (b"\xff\xfe\x00\x01", b"x,label\n1,\xe9\n", bytes(range(256))):
        (tmp_path / "a.csv").write_bytes(content)
        with pytest.raises(DataError, match="a.csv"):
            load(tmp_path / "a.csv")
    with pytest.raises(DataError, match="not a readable|no such file"):
        load(tmp_path / "none.csv")


def test_sizes_are_bounded(tmp_path, monkeypatch):
    path = write(tmp_path / "a.csv", "x,label\n" + "1" * 5000 + ",a\n")
    monkeypatch.setattr(csv_tables, "MAX_LINE", 100)
    with pytest.raises(DataError, match="more than 100 characters"):
        load(path)
    monkeypatch.setattr(csv_tables, "MAX_BYTES", 100)
    with pytest.raises(DataError, match="the limit is 100"):
        load(path)


def test_thousands_of_columns_are_read_in_a_moment(tmp_path):
    columns = [f"the column of number {number}" for number in range(40_000)]
    text = "\t".join([*columns, "label"]) + "\n" + "\t".join(["0"] * 40_001) + "\n"
    begun = time.process_time()
    assert load_inputs(write(tmp_path / "a.csv", text), features=columns[::-1]).shape == (1, 40_000)
    assert time.process_time() - begun < 5


def test_a_column_of_names_is_no_label(tmp_path):
    rows = "".join(f"1,person{i}\n" for i in range(10_001))
    with pytest.raises(DataError, match="10001 different labels"):
        load(write(tmp_path / "a.csv", "x,label\n" + rows))


@settings(max_examples=150, deadline=None)
@given(st.one_of(st.binary(max_size=200), st.text("x,label\n01.e-\"';\t\r\0a", max_size=80).map(str.encode)))
def test_any_bytes_are_data_or_a_clear_error(tmp_path_factory, content):
    path = tmp_path_factory.getbasetemp() / "fuzz.csv"
    for head in (b"", b"x,z,label\n"):
        path.write_bytes(head + content)
        with suppress(DataError), warnings.catch_warnings():
            assert csv_tables.read_csv(path).x.isfinite().all()
