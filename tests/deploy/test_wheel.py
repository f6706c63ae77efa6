"""What is published: three distributions of one tree that share no file, the same bytes wherever they are built."""

from __future__ import annotations

import email
import re
import subprocess
import sys
import tarfile
import zipfile
from email.message import Message
from pathlib import Path

import pytest

from deploy import distributions
from tests.house.tree import ROOT, committed_files, pyproject, source_roots

PARTS = ("eruca_client", "eruca_spark", "eruca")


def build(folder: Path) -> Path:
    """The files of all distributions, built from a copy of the tree in ``folder``, as in a release."""
    for file in committed_files():
        if file.parts[0] in ("tests", "docs"):
            continue
        copy = folder / "tree" / file
        copy.parent.mkdir(parents=True, exist_ok=True)
        copy.write_bytes((ROOT / file).read_bytes())
    program = folder / "tree/deploy/distributions.py"
    subprocess.run([sys.executable, str(program), str(folder / "dist")], check=True, timeout=120)
    return folder / "dist"


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build(tmp_path_factory.mktemp("one"))


def wheel(built: Path, part: str) -> zipfile.ZipFile:
    (file,) = built.glob(f"{part}-*.whl")
    return zipfile.ZipFile(file)


def metadata(built: Path, part: str) -> Message:
    with wheel(built, part) as opened:
        (name,) = [each for each in opened.namelist() if each.endswith(".dist-info/METADATA")]
        return email.message_from_bytes(opened.read(name))


@pytest.mark.processes
@pytest.mark.slow
class TestBuilt:
    def test_two_builds_in_two_places_are_the_same_bytes(self, built: Path, tmp_path: Path) -> None:
        (tmp_path / "another place").mkdir()
        other = build(tmp_path / "another place")

        assert {file.name: file.read_bytes() for file in other.iterdir()} == {
            file.name: file.read_bytes() for file in built.iterdir()
        }

    def test_each_module_is_in_one_wheel_and_none_closes_the_namespace(self, built: Path) -> None:
        files: list[str] = []
        for part in PARTS:
            with wheel(built, part) as opened:
                files += [name for name in opened.namelist() if ".dist-info/" not in name and not name.endswith(".so")]

        committed = [Path(*file.parts[1:]).as_posix() for file in committed_files() if file.parts[0] in source_roots()]
        assert sorted(files) == sorted(committed)
        assert "eruca/__init__.py" not in files

    def test_the_client_and_spark_are_python_alone(self, built: Path) -> None:
        assert [*built.glob("eruca_client-*-py3-none-any.whl")] and [*built.glob("eruca_spark-*-py3-none-any.whl")]

    def test_all_have_one_version_and_require_one_another_in_it(self, built: Path) -> None:
        version = pyproject()["project"]["version"]
        needed = {part: metadata(built, part).get_all("Requires-Dist", []) for part in PARTS}

        assert {metadata(built, part)["Version"] for part in PARTS} == {version}
        assert f"eruca-client=={version}" in needed["eruca"]
        assert f"eruca-client=={version}" in needed["eruca_spark"]
        assert f"eruca-spark[spark]=={version}; extra == 'spark'" in needed["eruca"]
        assert f"eruca-client[redis]=={version}; extra == 'redis'" in needed["eruca"]
        assert [each for each in needed["eruca_client"] if "extra" not in each] == ["msgspec>=0.19"]

    def test_no_link_of_a_page_is_dead(self, built: Path) -> None:
        for part in PARTS:
            page = str(metadata(built, part).get_payload())
            assert page.startswith("# ")
            assert [link for link in distributions.LINK.findall(page) if "://" not in link[1]] == []

    def test_an_sdist_has_what_its_wheel_is_built_from_and_the_licence(self, built: Path) -> None:
        for part in PARTS:
            (file,) = built.glob(f"{part}-*.tar.gz")
            with tarfile.open(file) as opened:
                names = {name.partition("/")[2] for name in opened.getnames()}
            assert {"LICENSE", "README.md", "pyproject.toml", "PKG-INFO"} <= names
            assert ("hatch_build.py" in names) == (part == "eruca")


def test_every_root_extra_script_and_entry_point_is_published_once() -> None:
    declared, project = pyproject()["tool"]["eruca"]["distributions"], pyproject()["project"]

    def published(key: str) -> list[str]:
        return sorted(each for part in declared.values() for each in part.get(key, []))

    assert published("roots") == sorted(source_roots())
    assert published("extras") == sorted({*project["optional-dependencies"]} - {"test"})
    assert published("scripts") == sorted(project["scripts"])
    assert published("entry_points") == sorted(project["entry-points"])
    assert {*published("dependencies")} == {distributions.of_name(each) for each in project["dependencies"]}


def test_the_oldest_packages_that_are_allowed_are_those_that_ci_installs() -> None:
    """.ci/wheels runs the servers with them, so that what pyproject.toml promises is true."""
    lock = (ROOT / ".ci/lowest.lock").read_text("utf-8")
    versions = dict(re.findall(r"^([a-z-]+)==(\S+)", lock, re.MULTILINE))

    for each in pyproject()["project"]["dependencies"]:
        name, _, least = each.partition(">=")
        assert f"{versions[name]}.0.0".startswith(f"{least}."), each


def test_a_user_of_eruca_has_the_extras_of_its_parts_by_its_name() -> None:
    made = distributions.project_of("eruca")["optional-dependencies"]

    assert {*made} == {*pyproject()["project"]["optional-dependencies"]} - {"test"}


def test_links_lead_to_the_source_of_the_version_where_the_project_says_where_that_is() -> None:
    page = "Read [the client](../../docs/client.md#sending), [below](#more) and [other](https://a.example)."
    place = Path("deploy/readme/eruca-client.md")

    assert distributions.absolute(page, place, "https://forge.example/eruca/", "1.2") == (
        "Read [the client](https://forge.example/eruca/blob/v1.2/docs/client.md#sending), [below](#more) and "
        "[other](https://a.example)."
    )
    assert distributions.absolute(page, place, None, "1.2") == (
        "Read the client, [below](#more) and [other](https://a.example)."
    )


def test_a_name_that_is_not_declared_is_a_sentence(tmp_path: Path) -> None:
    ran = subprocess.run(
        [sys.executable, str(ROOT / "deploy/distributions.py"), str(tmp_path), "eruca-java"],
        capture_output=True,
        text=True,
    )

    assert (ran.returncode, ran.stderr) == (
        1,
        "distributions: eruca-java is not declared in pyproject.toml, only eruca-client, eruca-spark, eruca\n",
    )
