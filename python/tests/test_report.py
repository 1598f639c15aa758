"""Reports: what happened in pools, pipelines and services."""

import html.parser
import json
import os
import pickle

import pytest
import stages
import tasks
from gates import Gates

from gangline import Forked, Pipeline, Pool, PoolError, Report, Service

MARKUP = "<script>alert('x')</script> & \"<b>\""


class Unprintable:
    """A key that no text can be made of."""

    def __str__(self):
        raise RuntimeError("no text")

    __repr__ = __str__


class Texts(html.parser.HTMLParser):
    """The texts and elements of HTML. Each element that is begun has to be ended."""

    def __init__(self, text):
        super().__init__()
        self.texts, self.tags, self._open = [], set(), []
        self.feed(text)
        assert not self._open

    def handle_starttag(self, tag, attributes):
        self.tags.add(tag)
        if tag != "meta":
            self._open.append(tag)

    def handle_endtag(self, tag):
        assert self._open.pop() == tag

    def handle_data(self, data):
        self.texts.append(data)

    def text(self):
        return " ".join(" ".join(self.texts).split())


def shown(report):
    """Return the text of a report as a notebook shows it."""
    part = report._repr_html_()
    assert part.startswith('<div class="gangline-report">')
    seen = Texts(part)
    assert not seen.tags & {"script", "b", "iframe", "html", "body", "link", "img"}
    return seen.text()


def raise_markup(state, x):
    raise ValueError(f"{MARKUP} {x}\n\nand more")


def test_a_report_has_its_counts_and_workers():
    with Pool(None, tasks.fail_on, workers=2) as pool:
        list(pool.imap(range(6), keys="abcdef"))
        report = pool.report()
        assert (report.ok, report.failed, report.already_done) == (4, 2, 0)
        assert [share.worker for share in report.workers] == sorted(report.busy) == [0, 1]
        assert sum(share.items for share in report.workers) == 6
        assert all(0 <= share <= 1 for share in report.busy.values())
        assert {share.place for share in report.workers} == {"cpu"} and report.seconds > 0
        assert report.stages == {} and report.limiting_stage is None
        assert "(c): ValueError: bad 2" in report and "Traceback" not in report
        pool.map([0])
        assert report.ok == 4, "it does not change"
        assert pool.report().ok == 5
    assert pool.report().ok == 5, "also of a pool that is closed"
    assert pool.report().to_dict()["ending"] == "finished"


def test_a_report_concludes_in_the_words_of_the_package():
    with Pool(None, tasks.echo, workers=2) as pool:
        pool.map(range(200))
        open_report = pool.report()
    for report in (open_report, pool.report()):
        assert report.conclusion and "in progress" not in report.conclusion
        for text in (str(report), report.html(), shown(report)):
            assert "worker" in text.lower() and "producer" not in text.lower() and "timeline()" not in text
        assert report.conclusion.split(":")[0] in str(report).replace("\n", " ")


def test_a_report_of_the_library_is_read_in_the_words_of_the_package():
    findings = {
        "lasted": 10.0,
        "stage": {"name": "the producers", "number": 2, "all": 3},
        "team": {"all": 4, "lost": 0, "place": "threads"},
        "limit": {"kind": "producers", "busy": 0.97, "rebuilding": 0.0},
        "second": {"part": "producers", "share": 0.9, "stage": 'say "`window(7)`"'},
        "advice": [
            {"change": "more_producers", "to": 8, "places": "cpus"},
            {"change": "larger_batch", "items": 64},
            {"change": "window", "items": 512},
            {"change": "window_memory", "bytes": 1024, "memory": 2000},
            {"change": "completion_order"},
            {"change": "speculate"},
            {"change": "faster_init"},
        ],
    }
    said = (
        'In "the producers" (stage 2 of 3) the workers limited the run: the 4 workers worked 97 % of the time, '
        'closely followed by the workers of "say \\"`window(7)`\\"" (90 %); use more workers (the source and '
        "the caller keep up with `workers=8`) or faster devices, try larger lists (`batch=64`), use `window=512` "
        "if memory has room for its results, use a larger `window`, take results as they come "
        '(`order="completion"`), or make `load` faster.'
    )
    report = Report.from_json(json.dumps({"conclusion": "In the words of the library.", "findings": findings}))
    assert report.conclusion == said
    assert Report.from_json(report.json()).conclusion == said
    # An earlier version wrote the sentence alone.
    assert Report.from_json(json.dumps({"conclusion": "As it is."})).conclusion == "As it is."


def test_the_report_of_a_pipeline_has_its_stages():
    pipeline = Pipeline().stage(stages.echo, workers=1, name="read").stage(stages.fail_on_five, workers=2, name="infer")
    with pipeline:
        list(pipeline.imap(range(10)))
        report = pipeline.report()
    assert (report.ok, report.failed) == (9, 1)
    assert list(report.stages) == ["read", "infer"]
    assert (report.stages["read"].ok, report.stages["infer"].ok) == (10, 9)
    assert [(share.worker, share.stage) for share in report.workers] == [(0, "read"), (1, "infer"), (2, "infer")]
    assert sorted(report.stages["infer"].busy) == [0, 1]
    assert report.stages["infer"].conclusion
    text = shown(report)
    assert "read, infer" in text and "item 5" in text


def test_a_conclusion_names_the_stage_that_limited_the_run():
    stage = {"name": f"infer {MARKUP}", "report": {}}
    data = {"bottleneck_stage": 2, "stages": [{"name": "read", "report": {}}, stage]}
    report = Report.from_json(json.dumps(data))
    assert report.limiting_stage == f"infer {MARKUP}"
    assert "limited the run" in shown(report)


def test_texts_of_the_user_are_no_markup():
    pipeline = Pipeline().stage(None, raise_markup, workers=1, name=MARKUP)
    with pipeline:
        list(pipeline.imap([1], keys=[MARKUP]))
    text = shown(pipeline.report())
    assert f"ValueError: {MARKUP} 1" in text
    assert text.count(MARKUP) >= 3
    assert not Texts(pipeline.report().html()).tags & {"script", "b"}


@pytest.mark.parametrize("make", [Pool, Service])
def test_keys_need_not_be_texts(make):
    keys = [("a", 1), Unprintable(), "caf\udce9", None, "x" * 100_000]
    with make(None, tasks.fail_always, workers=1) as pool:
        take = pool.imap if make is Pool else pool.stream
        records = list(take(range(5), keys=keys))
        assert [record.key for record in records] == keys
        report = pool.report()
    for key in ("('a', 1)", "<Unprintable>", "caf\\udce9"):
        assert f"({key})" in report.html().replace("&lt;", "<").replace("&gt;", ">").replace("&#39;", "'")
    assert len(report.json()) < 100_000
    assert (report.ok, report.failed) == (0, 5)


def test_before_any_call_there_is_no_run(tmp_path):
    pool = Pool(None, tasks.echo, workers=1)
    for each in (pool, Service(None, tasks.echo, workers=1), Pipeline().stage(stages.echo, workers=1)):
        report = each.report()
        assert str(report).strip() == "no run yet"
        assert (report.conclusion, report.busy, report.stages, report.ok) == ("", {}, {}, 0)
        assert "No run yet" in shown(report)
        assert repr(report) == "<gangline.Report: no run yet>"
        each.close()
    assert not pool.report().workers


def test_runs_without_items_and_with_failures_only_are_reported():
    with Pool(None, tasks.fail_always, workers=1) as pool:
        assert pool.map([]) == []
        assert (pool.report().ok, pool.report().failed) == (0, 0)
        list(pool.imap(range(3)))
        assert (pool.report().ok, pool.report().failed) == (0, 3)
    with Pipeline().stage(stages.echo, workers=1) as pipeline:
        summary = pipeline.run([])
    assert str(summary) == str(pipeline.report()) and "No item was read" in summary.report.conclusion
    assert "No item was read" in Texts(summary._repr_html_()).text()


def test_a_load_that_fails_is_reported_in_the_words_of_the_package():
    for pool in (
        Pool(stages.load_fails, stages.add, workers=1),
        Pipeline().stage(stages.load_fails, stages.add, workers=1),
    ):
        with pytest.raises(PoolError):
            pool.map([1])
        report = pool.report()
        assert "load failed on cpu (worker 0): RuntimeError: no weights" in " ".join(str(report).split())
        assert "producer" not in str(report) and "no weights" in shown(report)
        pool.terminate()


def test_a_pool_that_was_terminated_has_its_report(tmp_path):
    gates = Gates(tmp_path)
    pool = Pool(None, tasks.hold, workers=1)
    future = pool.submit(gates.item("held"))
    gates.await_begun("held")
    pool.terminate()
    assert future.exception() is not None
    assert pool.report().ok == 0 and str(pool.report())


def test_a_call_with_a_journal_is_reported_once_it_has_ended(tmp_path):
    with Pool(None, tasks.fail_on, workers=1, journal=tmp_path / "run.journal", resume=True) as pool:
        list(pool.imap(range(4)))
        assert (pool.report().ok, pool.report().failed) == (3, 1)
        list(pool.imap(range(5)))
        assert (pool.report().ok, pool.report().already_done) == (1, 3)


@pytest.mark.parametrize(("name", "start"), [("r.html", "<!DOCTYPE html>"), ("r.json", "{"), ("r.txt", "3 items in")])
def test_a_report_is_saved_in_the_form_of_the_name(tmp_path, name, start):
    with Pool(None, tasks.echo, workers=1, report=tmp_path / f"option-{name}") as pool:
        pool.map(range(3))
        pool.report().save(tmp_path / name)
    for path in (tmp_path / name, tmp_path / f"option-{name}"):
        assert path.read_text().startswith(start)
    if name == "r.json":
        assert json.loads((tmp_path / name).read_text())["version"] == 1


def test_a_report_can_be_kept():
    with Pool(None, tasks.fail_on, workers=1) as pool:
        list(pool.imap(range(3)))
    report = pool.report()
    for copy in (pickle.loads(pickle.dumps(report)), Report.from_json(report.json())):
        assert str(copy) == str(report) and copy.to_dict() == report.to_dict()
    with pytest.raises(ValueError, match="not a run report"):
        Report.from_json("[]")


def test_a_fork_has_the_reports_that_were_made_and_no_others():
    with Pool(None, tasks.echo, workers=1) as pool:
        pool.map([1])
        report = pool.report()
        reads, writes = os.pipe()
        child = os.fork()
        if child == 0:
            try:
                said = [str(report.ok), repr(report)[:16]]
                try:
                    pool.report()
                except Forked:
                    said.append("Forked")
                os.write(writes, " ".join(said).encode())
            finally:
                os._exit(0)
        os.close(writes)
        os.waitpid(child, 0)
        with os.fdopen(reads) as file:
            assert file.read() == "1 <gangline.Report Forked"


def test_a_pool_that_is_closed_keeps_no_descriptors():
    def descriptors():
        return len(os.listdir("/proc/self/fd"))

    Pool(None, tasks.echo, workers=1).close()
    before = descriptors()
    pools = [Pool(None, tasks.echo, workers=1) for _ in range(3)]
    for pool in pools:
        pool.map([1])
        pool.close()
    assert all(pool.report().ok == 1 for pool in pools)
    assert descriptors() <= before
