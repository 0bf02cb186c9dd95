"""The page of the benchmarks is what its measurements say."""

from pathlib import Path
from xml.etree import ElementTree

import pytest

from benchmarks import page, records
from benchmarks.question import Measure, Question, answer
from benchmarks.sample import Sample

REFERENCE = Path(__file__).parents[3] / "docs" / "reference"
SAMPLES = [Sample("ours", 1.0, 100), Sample("theirs", 3.0, 100), Sample("ours", 1.0, 100), Sample("theirs", 5.0, 100)]
QUESTIONS = [
    Question("rows <fast>", "ours", Measure.SPEED, 2.0, "theirs"),
    Question("few seconds", "ours", Measure.LONGEST, 0.1),
]


@pytest.fixture
def kept(tmp_path: Path) -> Path:
    path = tmp_path / "answers.json"
    answers = [answer(question, SAMPLES) for question in QUESTIONS]
    records.keep(path, records.record("case", "How fast?", 0.5, 1.0, SAMPLES, answers))
    return path


def test_a_record_comes_back_as_it_was_kept(kept: Path):
    (record,) = records.load(kept).values()
    assert record.samples == SAMPLES
    assert [answered.question for answered in record.answers] == QUESTIONS
    assert record.answers[0].values == [3.0, 5.0]
    assert {"commit", "machine", "versions", "at"} <= record.circumstances.keys()


def test_a_case_that_is_asked_again_replaces_its_answer_alone(kept: Path):
    records.keep(kept, records.record("another", "?", 1.0, 1.0, [], []))
    records.keep(kept, records.record("case", "?", 2.0, 1.0, [], []))
    assert {name: record.scale for name, record in records.load(kept).items()} == {"another": 1.0, "case": 2.0}


def test_the_page_has_figure_spread_and_verdict(kept: Path, tmp_path: Path):
    page.write(tmp_path / "page.md", records.load(kept))
    text = (tmp_path / "page.md").read_text()
    assert "| rows <fast> | speed | theirs | >= 2x | 4x (3x to 5x) | met |" in text
    assert "| few seconds | seconds | nothing | <= 100 ms | 1 s (1 s to 1 s) | **missed** |" in text
    assert "1 of 2 targets are met" in text
    assert "scale 0.5" in text


def test_the_prose_of_a_case_is_one_sentence_a_line():
    prose = "How fast?\n\nRows come in\none INSERT ... SELECT. pgbench asks.\n(That is\nnew.) So are 2.5x."
    assert page.sentences(prose).splitlines() == [
        "How fast?",
        "",
        "Rows come in one INSERT ... SELECT.",
        "pgbench asks.",
        "(That is new.)",
        "So are 2.5x.",
    ]


def test_a_note_is_below_the_table_of_its_case(tmp_path: Path):
    samples = [Sample("ours", 1.0, 1, note="Why.\n\n```text\nSeq Scan\n```"), Sample("ours", 1.0, 1)]
    path = tmp_path / "answers.json"
    records.keep(path, records.record("case", "How fast?", 1.0, 1.0, samples, []))
    page.write(tmp_path / "page.md", records.load(path))
    text = (tmp_path / "page.md").read_text()
    assert text.endswith("| ours | 1 s | 1 s | 1 s |  | 2 |\n\n### ours\n\nWhy.\n\n```text\nSeq Scan\n```\n")


def test_the_plots_are_well_formed_and_show_every_sample(kept: Path, tmp_path: Path):
    page.write(tmp_path / "page.md", records.load(kept))
    for name, dots in (("answers", 4), ("case", 4)):
        tree = ElementTree.parse(tmp_path / "page" / f"{name}.svg")
        assert len(tree.findall(".//{http://www.w3.org/2000/svg}circle")) == dots


def test_the_page_in_the_documentation_is_made_of_its_measurements(tmp_path: Path):
    page.write(tmp_path / "benchmarks.md", records.load(REFERENCE / "benchmarks.json"))
    assert (tmp_path / "benchmarks.md").read_text() == (REFERENCE / "benchmarks.md").read_text()
    for picture in (tmp_path / "benchmarks").iterdir():
        assert picture.read_text() == (REFERENCE / "benchmarks" / picture.name).read_text()
