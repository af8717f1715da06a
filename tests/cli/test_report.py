"""`tpufleet report`: from what is home, without cloud, host or network."""

from __future__ import annotations

from tests.project import Project
from tests.unit.report_data import write_home

FILES = ("index.html", "index.md", "metrics.csv", "runs.csv", "runs.json")


def test_a_report_is_written_again_from_what_is_home_and_nobody_is_asked(project: Project) -> None:
    home = write_home(project.directory / "artifacts" / "sherlock", runs=2)
    answer = project.json("report")
    assert answer["fleet"] == "sherlock"
    assert answer["report"] == str(home / "report" / "index.html")
    assert answer["files"] == [str(home / "report" / name) for name in FILES]
    assert not (project.directory / ".tpufleet").exists()
