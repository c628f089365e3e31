"""What commands print: tables that line up, and names and values as people read them."""

import pytest

from edge_tools.output import print_facts, print_table, spoken_fact


def lines(capsys: pytest.CaptureFixture[str]) -> list[str]:
    return [line for line in capsys.readouterr().out.splitlines() if line]


def test_numbers_stand_right_also_beside_one_that_does_not_exist(capsys: pytest.CaptureFixture[str]) -> None:
    print_table("", ("label", "age"), [("a", 7), ("b", "-"), ("c", 1200)])
    _, _, *rows = lines(capsys)
    assert [len(row) for row in rows] == [len(rows[0])] * 3
    assert [row[-1] for row in rows] == ["7", "-", "0"]


def test_a_column_without_any_number_stands_left(capsys: pytest.CaptureFixture[str]) -> None:
    print_table("", ("label", "age"), [("a", "-"), ("b", "-")])
    head, _, *rows = lines(capsys)
    assert {row.index("-") for row in rows} == {head.index("age")}


def test_no_line_ends_in_blanks_and_a_table_without_names_has_no_head(capsys: pytest.CaptureFixture[str]) -> None:
    print_table("Title", ("", ""), [("a", "longer"), ("bc", "d")])
    printed = capsys.readouterr().out.splitlines()
    assert all(line == line.rstrip() for line in printed)
    assert [line.strip() for line in printed if line] == ["Title", "a    longer", "bc   d"]


def test_facts_are_named_in_words(capsys: pytest.CaptureFixture[str]) -> None:
    print_facts({"damaged_slots": 2})
    assert lines(capsys)[0].strip() == "damaged slots"


@pytest.mark.parametrize(
    ("name", "value", "expected"),
    [
        ("ram_bytes", 2048, ("RAM", "2.0 KB")),
        ("exact_search_ms", 0.5, ("exact search", "0.5 ms")),
        ("search_k", None, ("search k", "-")),
        ("building", False, ("building", "no")),
        ("damaged_slots", 3, ("damaged slots", "3")),
        ("method", "scan", ("method", "scan")),
    ],
)
def test_unit_goes_from_the_name_to_the_value(name: str, value: object, expected: tuple[str, str]) -> None:
    assert spoken_fact(name, value) == expected
