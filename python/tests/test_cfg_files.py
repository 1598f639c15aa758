import io
import math
import random

import pytest

from gangline.compat import CfgNode, HierarchicalCfgNode

config = pytest.importorskip("easycore.common.config", reason="easycore cannot be installed here")

TEXTS = ["abc", "yes", "No", "on", "1e3", "007", "a: b", "- x", "'q'", "", "two\nlines", " lead", "é", "null", "~"]
TEXTS += ["1:30", "2020-01-01", "{a: 1}", "#c", "!x", "&a", "0.1.0", "(1, 2)", "[1, '2']"]


def some_value(rng, depth=0):
    kind = rng.randrange(9 if depth < 3 else 7)
    if kind < 3:
        return rng.choice([None, True, False, 0.5, 1e30, -1e-7, 3.0, math.inf, 10**20, -7])
    if kind < 5:
        return rng.choice(TEXTS)
    if kind == 5:
        return (1, (2, "x"))
    if kind == 6:
        return [some_value(rng, 3) for _ in range(rng.randrange(4))]
    return {f"{rng.choice('abc')}{rng.randrange(3)}": some_value(rng, depth + 1) for _ in range(rng.randrange(5))}


@pytest.mark.parametrize("seed", range(200))
def test_a_node_survives_its_file_and_easycore_reads_it(seed):
    rng = random.Random(seed)
    values = {f"k{index}": some_value(rng) for index in range(4)}
    theirs = config.CfgNode.load(config.CfgNode.dump(config.CfgNode(values)))
    try:
        text = CfgNode.dump(CfgNode(values))
    except ValueError:
        # As a text, which a tuple is written as, a list with an infinite number cannot be read.
        assert "inf" in repr(values) and "(1, (2, 'x'))" in repr(values)
        return
    assert repr(CfgNode.load(text).dict()) == repr(theirs.dict())
    assert repr(config.CfgNode.load(text).dict()) == repr(theirs.dict())


@pytest.mark.parametrize("seed", range(200))
def test_files_of_easycore_say_the_same(seed):
    rng = random.Random(seed)
    node = config.CfgNode({f"k{index}": some_value(rng) for index in range(4)})
    text = config.CfgNode.dump(node)
    if "!!" not in text:
        assert repr(CfgNode.load(text).dict()) == repr(config.CfgNode.load(text).dict())


WRITTEN_BY_HAND = """
# A comment.
model: &model
  layers: 18
  lr: 1.0e-3
  decay: 1e-4
  shape: (224, 224)
  pretrained: yes
other:
  <<: *model
  layers: 50
names: [a, 'yes', no, 0o17, 017, 12:30]
text: |
  two
  lines
empty:
"""


def test_a_file_is_read_as_by_easycore(tmp_path):
    path = tmp_path / "cfg.yaml"
    path.write_text(WRITTEN_BY_HAND)
    ours, theirs = CfgNode.open(str(path)), config.CfgNode.open(str(path))
    assert str(ours) == str(theirs)
    assert ours.other.shape == (224, 224)
    assert CfgNode.open(path).dict() == theirs.dict()
    with path.open() as file:
        assert CfgNode.open(file).dict() == theirs.dict()
    with path.open("rb") as file:
        assert CfgNode.open(file).dict() == theirs.dict()
    assert CfgNode.load("").dict() == {}
    # The original returns an error for it too.
    with pytest.raises(ValueError, match="the top must be a node, not a list"):
        CfgNode.load("[1]")
    with pytest.raises(TypeError, match="a path or an open file, got 3"):
        CfgNode.open(3)


def test_a_text_that_would_call_something_is_refused():
    with pytest.raises(ValueError, match=r'the tag "tag:yaml.org,2002:python/object/apply:os.getpid" is not supported'):
        CfgNode.load("a: !!python/object/apply:os.getpid []")


def test_dump_writes_where_it_is_told():
    cfg = CfgNode({"b": {"z": 1, "x": 2}, "a": "é"})
    text = "a: é\nb:\n  x: 2\n  z: 1\n"
    assert CfgNode.dump(cfg) == text
    assert CfgNode.dump(cfg, encoding="utf-8") == text.encode()
    assert CfgNode.dump(cfg, sort_keys=False) == "b:\n  z: 1\n  x: 2\na: é\n"
    written, bytes_written = io.StringIO(), io.BytesIO()
    assert CfgNode.dump(cfg, written, encoding="utf-8") is None
    assert CfgNode.dump(cfg, bytes_written, encoding="utf-8") is None
    assert (written.getvalue(), bytes_written.getvalue()) == (text, text.encode())


def test_a_value_that_cannot_be_written_leaves_the_file(tmp_path):
    path = tmp_path / "cfg.yaml"
    CfgNode({"a": 1}).save(path)
    cfg = CfgNode({"a": 2})
    cfg.model = {"net": [object()]}
    with pytest.raises(ValueError, match=r"model.net.0 .*<class 'object'> is no plain value"):
        cfg.save(path)
    assert path.read_text() == "a: 1\n"


def test_values_of_a_file_win_over_those_of_its_base(tmp_path):
    (tmp_path / "sub").mkdir()
    (tmp_path / "base.yaml").write_text("A: in base\nB: {C: 1, D: 2}\nE: 3\n")
    (tmp_path / "middle.yaml").write_text("__BASE__: ./base.yaml\nA: in middle\nB: {D: 4}\n")
    top = tmp_path / "sub" / "top.yaml"
    top.write_text("__BASE__: ../middle.yaml\nF: 5\n")
    ours = HierarchicalCfgNode.open(str(top))
    assert ours.dict() == {"A": "in middle", "B": {"C": 1, "D": 4}, "E": 3, "F": 5}
    assert ours.dict() == config.HierarchicalCfgNode.open(str(top)).dict()

    ours.B.D = 6
    ours.G = CfgNode({"x": (1, 2)})
    saved = tmp_path / "saved.yaml"
    HierarchicalCfgNode.save(ours, str(saved), str(top))
    assert saved.read_text() == "B:\n  D: 6\nG:\n  x: (1, 2)\n__BASE__: sub/top.yaml\n"
    assert HierarchicalCfgNode.open(saved).dict() == ours.dict()
    assert config.HierarchicalCfgNode.open(str(saved)).dict() == ours.dict()
    HierarchicalCfgNode.save(ours, saved, top, base_path_relative=False)
    assert CfgNode.open(saved)["__BASE__"] == str(top)


def test_bases_that_go_round_or_are_missing_are_errors(tmp_path):
    for name, base in [("a", "b"), ("b", "c"), ("c", "b"), ("own", "own"), ("lost", "nowhere")]:
        (tmp_path / f"{name}.yaml").write_text(f"__BASE__: {base}.yaml\n")
    with pytest.raises(FileExistsError, match=r"b.yaml is based on itself: .*b.yaml -> .*c.yaml -> .*b.yaml"):
        HierarchicalCfgNode.open(tmp_path / "a.yaml")
    with pytest.raises(FileExistsError, match=r"own.yaml is based on itself"):
        HierarchicalCfgNode.open(tmp_path / "own.yaml")
    with pytest.raises(FileNotFoundError, match=r"__BASE__: nowhere.yaml in .*lost.yaml"):
        HierarchicalCfgNode.open(tmp_path / "lost.yaml")
