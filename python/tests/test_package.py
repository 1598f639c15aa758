"""What the installed package says of itself."""

from importlib.metadata import metadata, version

from conftest import HERE

import gangline


def test_the_version_is_that_of_the_package():
    assert gangline.__version__ == version("gangline")
    assert "__version__" in dir(gangline)


def test_the_version_is_that_of_the_crates():
    workspace = (HERE.parents[1] / "Cargo.toml").read_text()
    assert f'\nversion = "{gangline.__version__}"\n' in workspace


def test_the_package_names_its_pages_and_licences():
    about = metadata("gangline")
    urls = dict(line.split(", ", 1) for line in about.get_all("Project-URL"))
    assert {"Repository", "Documentation", "Issues"} <= urls.keys()
    licences = {name.rpartition("/")[2] for name in about.get_all("License-File")}
    assert licences >= {"LICENSE-MIT", "LICENSE-APACHE", "THIRD-PARTY-LICENSES.txt"}
