"""evaluate, from the text to trials, ranks and versions: a trainer of a few lines, no processes."""

from __future__ import annotations

import re
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import dlv.dql.execute as execute
import dlv.dql.saved as saved
from dlv.api import Repo
from dlv.dql.outcome import Explained, QueryOptions, TrainingPlan
from dlv.dql.trials.evaluating import AllFailed
from dlv.errors import Conflict, DlvError, NotFound, UnsafeInput, UsageError
from dlv.metadata import versions
from dlv.metadata.trials import Trials as Store
from dlv.repository.handle import Repository
from dlv.training.ledger.ledger import Ledger
from dlv.training.workers import pool
from dlv.versions.version import Version
from tests.dql import trying
from tests.dql.trying import ask, steps, summary, varied

BASE = 'evaluate m from m where m.name = "net" with config = "base.toml"'
ONE = 'evaluate m from m where m = "net@1" with config = "base.toml"'
TORCH = f"{ONE}, config.trainer = 'torch'"


@pytest.fixture(scope="module")
def made(tmp_path_factory: Any, commit_model: Callable[..., str]) -> Path:
    folder: Path = tmp_path_factory.mktemp("trials")
    trying.repository(folder, commit_model).close()
    return folder


@pytest.fixture
def repository(made: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Repository]:
    folder = tmp_path / "work"
    shutil.copytree(made, folder)
    monkeypatch.setattr(pool, "train", trying.in_process)
    monkeypatch.syspath_prepend(str(folder))
    with Repository.find(folder) as found:
        yield found


def committed(repository: Repository, name: str) -> list[Version]:
    rows = versions.of_name(repository.database, name)
    return [Version(repository, row) for row in sorted(rows, key=lambda row: row.number or 0)]


def test_networks_times_configurations(repository: Repository) -> None:
    told: list[str] = []
    text = f"{BASE} vary config.base_lr in [0.1, 0.3] and config.seed in 0..1"
    found = ask(repository, text, say=told.append)
    assert told == ["m: 2 networks x 4 configurations = 8 trials, <= 160 steps"]
    assert len(found.trials) == 8
    assert steps(repository) == 160
    assert {each.origins for each in found.trials} == {("net@1",), ("net@2",)}
    by_number = sorted(found.trials, key=lambda each: each.ordinal)
    assert [dict(each.varied) for each in by_number[:4]] == [
        {"base_lr": rate, "seed": seed} for rate in (0.1, 0.3) for seed in (0, 1)
    ]


def test_the_best_go_on(repository: Repository) -> None:
    text = f'{ONE} vary config.base_lr in [0.05, 0.1, 0.2, 0.3] keep top(2, m["loss"], 5)'
    found = ask(repository, text)
    assert [each.varied["base_lr"] for each in found.trials] == [0.3, 0.2, 0.1, 0.05]
    assert [each.kept for each in found.trials] == [True, True, False, False]
    assert [each.view.step for each in found.trials if each.view] == [20, 20, 5, 5]
    assert steps(repository) == 2 * 20 + 2 * 5
    why = [each.view.why for each in found.trials if each.view][2]
    assert why.startswith("not in the top 2: loss ")
    assert (found.metric, found.direction, found.state) == ("loss", "min", "over")


def test_what_is_done_is_never_done_again(repository: Repository) -> None:
    text = f'{ONE} vary config.base_lr in [0.1, 0.2] keep top(1, m["loss"], 5) into "tuned"'
    first = ask(repository, text)
    before = steps(repository)
    again = ask(repository, text)
    assert steps(repository) == before
    assert summary(again) == summary(first)
    assert len(committed(repository, "tuned")) == 1
    assert [each.before for each in again.trials] == [True, False]
    more = ask(repository, text.replace("[0.1, 0.2]", "[0.1, 0.2, 0.3]"))
    assert more.run != first.run
    assert more.done == 1  # that with 0.2
    assert steps(repository) == before + 20


def test_with_more_workers_it_is_the_same_run(repository: Repository) -> None:
    text = f'{ONE} vary config.base_lr in [0.1, 0.2] keep top(1, m["loss"], 5)'
    first = ask(repository, f"{text} on local(workers = 1)")
    for other in (text, f"{text}\n  on local(workers = 2)", text.replace(" keep", "\n keep")):
        again = ask(repository, other)
        assert again.run == first.run
        assert again.done == 1
    with Store(repository.trials_path) as store:
        (run,) = Ledger(store).runs()
        assert run.text == text.replace(" keep", "\n keep")  # as it was asked last


def test_the_steps_of_a_constant_rate_go_on(repository: Repository) -> None:
    text = ONE.replace('"base.toml"', '"base.toml", config.schedule.kind = "constant"')
    short = ask(repository, text)
    longer = ask(repository, text.replace('"constant"', '"constant", config.steps = 30'))
    assert [each.id for each in short.trials] == [each.id for each in longer.trials]
    assert steps(repository) == 30
    straight = ask(repository, f"{ONE}, config.steps = 30, config.schedule.note = 1")
    assert straight.trials[0].view is not None
    assert longer.trials[0].view is not None
    assert straight.trials[0].view.last == longer.trials[0].view.last


def test_trained_on_it_is_another_version(repository: Repository) -> None:
    text = ONE.replace('"base.toml"', '"base.toml", config.schedule.kind = "constant"')
    longer = f"{text}, config.steps = 30"
    labels = []
    for query in (text, longer, text, longer):
        found = ask(repository, f'{query} into "tuned"')
        labels += [(each.committed, each.before) for each in found.trials]
    assert labels == [("tuned@1", False), ("tuned@2", False), ("tuned@1", True), ("tuned@2", True)]
    assert [each.manifest.snapshots[0].step for each in committed(repository, "tuned")] == [20, 30]


def test_winners_become_versions(repository: Repository) -> None:
    text = f'{ONE} vary config.base_lr in [0.1, 0.3] keep top(1, m["loss"]) into "tuned"'
    found = ask(repository, text, author="somebody")
    (best,) = committed(repository, "tuned")
    assert [each.committed for each in found.trials] == ["tuned@1", None]
    manifest = best.manifest
    source = versions.by_number(repository.database, "net", 1)
    assert source is not None
    assert [(parent.id, parent.kind) for parent in manifest.parents] == [(source.id, "evaluate")]
    assert manifest.hyperparameters["base_lr"] == 0.3
    assert manifest.hyperparameters["trainer"] == "own_trainer:train"
    told = manifest.derivation
    assert told is not None
    assert told["query"] == text
    assert told["trial"] == found.trials[0].id
    assert told["varied"] == {"base_lr": 0.3}
    assert told["reproducible"] is True
    assert told["environment"]["python"]
    assert manifest.author == "somebody"
    assert manifest.snapshots[0].step == 20
    # The weights are what twenty steps come to.
    expected = trying.tensors(0)["fc1.weight"]
    for _ in range(20):
        expected = expected + np.float32(0.3) * (1 - expected)
    assert np.array_equal(best.tensor("fc1.weight"), expected)
    points = best.metric("loss")
    assert list(points.steps) == [5, 10, 15, 20]
    view = found.trials[0].view
    assert view is not None
    assert points.values[-1] == view.last["loss"]


def test_derived_networks_begin_with_what_they_kept(repository: Repository) -> None:
    text = """
        evaluate t from (construct d from m where m = "net@1" mutate m["fc1"].out in [3, 5]) as m
        with config = "base.toml", config.steps = 1, config.base_lr = 0 into "grown"
    """
    found = ask(repository, text)
    assert len(found.trials) == 2
    plain, grown = committed(repository, "grown")
    assert np.array_equal(plain.tensor("fc1.weight"), trying.tensors(0)["fc1.weight"])
    assert np.array_equal(grown.tensor("fc1.weight")[:3], trying.tensors(0)["fc1.weight"])
    assert grown.tensor("fc1.weight").shape == (5, 128)
    told = grown.manifest.derivation
    assert told is not None
    assert [each["action"] for each in told["changes"]] == ["set"]
    assert 0 < told["reuse"]["share"] < 1


def test_messages_state_the_edit_and_the_settings(repository: Repository) -> None:
    text = (
        'evaluate d from (construct d from m where m = "net@1" mutate m["fc1"].out in [2, 4]'
        ' and m["relu1"].replace = ACT("GELU")) as d with config = "base.toml",'
        " config.steps = 5 vary config.base_lr in [0.01, 0.3] into "
    )
    ask(repository, f'{text} "tuned"')
    edit = "replace relu1: RELU by act1 (ACT GELU)"
    assert {version.manifest.message for version in committed(repository, "tuned")} == {
        f"evaluate of net@1: fc1.out = {out}, {edit}, steps = 5, base_lr = {rate}"
        for out in (2, 4)
        for rate in (0.01, 0.3)
    }
    ask(repository, f'{ONE} into "plain"')
    assert committed(repository, "plain")[0].manifest.message == "evaluate of net@1"


def test_long_messages_are_cut(repository: Repository) -> None:
    inserted = " and ".join(f'm["fc1"].insert = RELU("extra{n}")' for n in range(12))
    text = f'(construct d from m where m = "net@1" mutate {inserted})'
    ask(repository, f'evaluate d from {text} as d with config = "base.toml" into "long"')
    message = committed(repository, "long")[0].manifest.message
    assert message.endswith(", and 4 more edits")
    assert message.count("insert ") == 8


def test_scratch_begins_with_other_weights(repository: Repository) -> None:
    rest = "config.steps = 1, config.base_lr = 0, config.init = "
    ask(repository, f'{BASE}, {rest}"scratch" vary config.seed in [0, 1] into "fresh"')
    found = [each.tensor("fc1.weight") for each in committed(repository, "fresh")]
    # Both versions begin alike: their networks are equal, and so are the trials.
    assert len(found) == 2
    assert not np.array_equal(found[0], found[1])
    assert not np.array_equal(found[0], trying.tensors(0)["fc1.weight"])


def test_rates_of_nodes(repository: Repository) -> None:
    text = (
        f'{ONE}, config.steps = 5 vary config.base_lr in [0.1, 0.2] and config.net["conv*"].lr auto'
    )
    found = ask(repository, text)
    rates = {(v["base_lr"], v['net["conv*"].lr']) for v in varied(found)}
    assert rates == {(0.1, 0.01), (0.1, 0.1), (0.1, 1.0), (0.2, 0.02), (0.2, 0.2), (0.2, 2.0)}
    assert {str(each.config["net"]["conv1"]) for each in found.trials} == {
        str({"lr": rate}) for _, rate in rates
    }
    each = ask(repository, f'{ONE}, config.steps = 5 vary config.net["*1"].lr auto(each = true)')
    assert len(each.trials) == 9
    assert {key for v in varied(each) for key in v} == {'net["conv1"].lr', 'net["fc1"].lr'}


def test_values_out_of_a_query_and_of_parameters(repository: Repository) -> None:
    text = f"{ONE} vary config.x in (select m.number where m.name = $name) and config.y in $values"
    found = ask(repository, text, parameters={"name": "net", "values": [1.5, 2]})
    assert sorted((v["x"], v["y"]) for v in varied(found)) == [(1, 1.5), (1, 2), (2, 1.5), (2, 2)]
    with pytest.raises(UsageError, match="no value to try"):
        ask(repository, f'{ONE} vary config.x in (select m.number where m.name = "nobody")')


def test_random_and_tpe_are_the_same_twice(repository: Repository) -> None:
    pytest.importorskip("optuna")
    space = "vary config.base_lr in loguniform(1e-3, 1) and config.z in int(0, 9)"
    lot = f'{ONE} {space} using random(6, seed = 2) keep top(2, m["loss"], 5)'
    tpe = f'{ONE} {space} using tpe(9, seed = 2, batch = 4) keep top(2, m["loss"], 5)'
    for text, count in ((lot, 6), (tpe, 9)):
        first = ask(repository, text)
        assert len({str(v) for v in varied(first)}) == count
        assert ask(repository, text).trials == first.trials
        shutil.rmtree(repository.trials_folder)
        for path in repository.path.glob("trials.db*"):
            path.unlink()
        assert summary(ask(repository, text)) == summary(first)


def test_tpe_goes_on_where_it_was_interrupted(
    repository: Repository, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("optuna")
    text = (
        f"{ONE} vary config.base_lr in uniform(0.01, 0.5) using tpe(8, seed = 1, batch = 2)"
        ' keep top(3, m["loss"], 5)'
    )
    asked = 0

    def interrupted(store: Any, run: str, *, more: Any, **_: Any) -> None:
        def twice() -> None:
            nonlocal asked
            asked += 1
            if asked == 3:
                raise KeyboardInterrupt
            more()

        trying.in_process(store, run, more=twice)

    monkeypatch.setattr(pool, "train", interrupted)
    with pytest.raises(KeyboardInterrupt):
        ask(repository, text)
    asked = 100
    found = ask(repository, text)
    trained = steps(repository)
    assert trained == 3 * 20 + 5 * 5
    shutil.rmtree(repository.trials_folder)
    for path in repository.path.glob("trials.db*"):
        path.unlink()
    assert summary(ask(repository, text)) == summary(found)


def test_order_and_limit(repository: Repository) -> None:
    text = f"{ONE} vary config.base_lr in [0.1, 0.3, 0.2] order by "
    for order, expected in (
        ("config.base_lr", [0.1, 0.2, 0.3]),
        ('m["accuracy"]', [0.1, 0.2, 0.3]),
        ("config.base_lr desc limit 2", [0.3, 0.2]),
        ("state, m.zeal limit 1 offset 1", [0.2]),
        ("trial", [0.1, 0.3, 0.2]),
    ):
        found = ask(repository, text + order)
        assert [each.varied["base_lr"] for each in found.trials] == expected, order
    assert steps(repository) == 60


def test_explained_and_tried_only(repository: Repository) -> None:
    text = (
        f"{BASE} vary config.base_lr in [0.1, 0.2] and config.seed in 0..2"
        ' keep top(1, m["loss"], 5) budget(hours = 1) into "x"'
    )
    (plan,) = execute.run(repository, f"explain {text}", QueryOptions(directory=repository.root))
    assert isinstance(plan, Explained)
    assert plan.lines[0] == "m: 2 networks x 6 configurations = 12 trials, <= 240 steps"
    assert "  vary config.seed in 0..2  3 values" in plan.lines
    assert '  into "x"' in plan.lines
    assert (plan.document["trials"], plan.document["most_steps"]) == (12, 240)
    dry = ask(repository, text, dry_run=True)
    assert dry.plan == TrainingPlan(finished=0, to_train=12, waiting=0, steps=240)
    assert len(dry.trials) == 12
    assert not repository.trials_path.exists()
    assert not repository.trials_folder.exists()
    assert steps(repository) == 0


# What goes wrong


def test_some_fail_and_others_go_on(repository: Repository) -> None:
    text = f'{ONE} vary config.fault in ["none", "raise", "nan"] keep top(2, m["loss"]) into "left"'
    found = ask(repository, text)
    states = {each.varied["fault"]: each.view and each.view.state for each in found.trials}
    assert states == {"none": "done", "raise": "failed", "nan": "diverged"}
    assert found.counts["failed"] == 1
    assert [each.committed for each in found.trials] == ["left@1", None, None]
    failed = next(each.view for each in found.trials if each.varied["fault"] == "raise")
    assert failed is not None
    assert "RuntimeError" in (failed.error or "")
    assert "own_trainer.py" in (failed.error or "")
    whys = {each.varied["fault"]: each.view and each.view.why for each in found.trials}
    assert whys["raise"] == "RuntimeError: this trial was not meant to be"
    assert whys["nan"] == "accuracy nan, loss nan at step 5"
    before = steps(repository)
    ask(repository, text, retry_failed=True)
    assert steps(repository) == before + 1


def test_all_fail(repository: Repository) -> None:
    with pytest.raises(AllFailed) as caught:
        ask(repository, f'{ONE}, config.fault = "raise" vary config.seed in 0..1 into "none"')
    assert caught.value.exit_code == 4
    assert caught.value.why == "trial #1 of net@1: RuntimeError: this trial was not meant to be"
    wanted = r"dlv trials [0-9a-f]{7} 1 \(its output: .*output.txt\); to retry: --retry-failed\Z"
    assert re.match(wanted, caught.value.hint or "")
    assert committed(repository, "none") == []


@pytest.mark.parametrize(
    ("text", "kind", "said"),
    [
        (f"{ONE}, config.input_data = 'nowhere.npz'", NotFound, "no such data: nowhere.npz"),
        (f"{ONE}, config.input_data = 's3://x/y'", UsageError, "cannot be read"),
        (f"{TORCH}, config.input_data = 'odd.npz'", UsageError, "not fit the network net@1"),
        (f"{TORCH}, config.input_data = 'far.npz'", UsageError, "far.npz has the label 4"),
        (f"{ONE}, config.trainer = 'nowhere:train'", DlvError, "nowhere"),
        (f"{ONE}, config.trainer = ['no-such-program']", DlvError, "no-such-program"),
        (f"{ONE}, config.trainer = 'torch'", UsageError, "input_data"),
        (f'{ONE}, config.net["nope*"].lr = 1', UsageError, "nope"),
        ('evaluate m from m where m.name = "bare"', NotFound, "no network to train"),
        (f"{ONE} vary config.x in 1..1001", UnsafeInput, "1,001 trials"),
        (f"{ONE} vary config.x in 1..10000 and config.y in 1..9", UsageError, "90,000 trials"),
        (f'{ONE} into "v1"', Conflict, "tag"),
        (f'{ONE} keep threshold(m["loss"] < 1e999, 5)', UsageError, "is not a number"),
    ],
)
def test_what_is_said_before_anything_starts(
    repository: Repository, text: str, kind: type[DlvError], said: str
) -> None:
    np.savez(repository.root / "odd.npz", x=np.zeros((4, 5, 5)), y=np.zeros(4, int))
    np.savez(repository.root / "far.npz", x=np.zeros((4, 1, 8, 8)), y=np.arange(4) + 4)
    with repository.change("test") as change:
        row = versions.by_number(repository.database, "net", 1)
        assert row is not None
        change.record("tag", "v1", {"version": row.id})
    with pytest.raises(kind) as caught:
        ask(repository, text)
    assert said in caught.value.message
    assert not repository.trials_path.exists()
    assert steps(repository) == 0


def test_parameters_have_to_be_json(repository: Repository) -> None:
    for value in (float("inf"), {1, 2}):
        with pytest.raises(UsageError, match="parameters"):
            ask(repository, ONE, parameters={"unused": value})


def test_a_metric_that_nobody_logs(repository: Repository) -> None:
    with pytest.raises(UsageError, match="cannot be judged") as caught:
        ask(repository, f'{ONE} vary config.seed in 0..3 keep top(1, m["los"] asc)')
    assert "did you mean `loss`?" in (caught.value.why or "")
    assert steps(repository) == 20  # of the first trial alone


@pytest.mark.parametrize("more", ['keep top(1, m["los"] asc)', 'order by m["los"]'])
def test_a_metric_that_torch_does_not_log_is_told_before(repository: Repository, more: str) -> None:
    np.savez(repository.root / "d.npz", x=np.ones((9, 1, 8, 8), "f4"), y=np.zeros(9, "i8"))
    text = f"{TORCH}, config.input_data = 'd.npz' vary config.seed in 0..3 {more}"
    with pytest.raises(UsageError, match="no trial would log `los`") as caught:
        ask(repository, text)
    assert "loss" in caught.value.did_you_mean


def test_many_trials_need_a_budget(repository: Repository) -> None:
    text = f"{ONE}, config.steps = 1 vary config.x in 1..1001 budget(trials = 3)"
    found = ask(repository, text, dry_run=True)
    assert len(found.trials) == 1001


def test_a_budget_ends_a_run(repository: Repository) -> None:
    found = ask(repository, f"{ONE} vary config.x in 1..5 budget(trials = 2)")
    assert sum(bool(each.view and each.view.step) for each in found.trials) == 2
    assert "budget" in found.why or any(
        "budget" in each.view.why for each in found.trials if each.view
    )


def test_code_out_of_a_version_needs_trust(repository: Repository) -> None:
    commit_files(repository)
    text = 'evaluate m from m where m = "net@1" with config = "coded@1:base.toml"'
    with pytest.raises(UnsafeInput, match="names code to run:"):
        ask(repository, text)
    assert steps(repository) == 0
    own = f"{text}, config.trainer = 'own_trainer:train', config.steps = 5"
    assert len(ask(repository, own).trials) == 1
    assert len(ask(repository, text, trust=True).trials) == 1
    with pytest.raises(NotFound, match="has no file"):
        ask(repository, text.replace("base.toml", "bass.toml"))


def commit_files(repository: Repository) -> None:
    """A version `coded@1` with base.toml among its files."""
    repo = Repo(repository)
    repo.add(str(repository.root / "base.toml"), role="file")
    repo.commit("files", name="coded", orphan=True)


def test_fresh_begins_anew(repository: Repository) -> None:
    text = f"{ONE} vary config.seed in 0..1"
    ask(repository, text)

    def refuse(question: str) -> None:
        assert question == "2 trials and their checkpoints will be discarded"
        raise UnsafeInput("not confirmed")

    with pytest.raises(UnsafeInput):
        ask(repository, text, fresh=True, agree=refuse)
    assert steps(repository) == 40
    ask(repository, text, fresh=True)
    assert steps(repository) == 80


def test_the_last_checkpoint_of_stopped_trials_stays_unless_it_is_discarded(
    repository: Repository,
) -> None:
    text = f'{ONE} vary config.base_lr in [0.1, 0.2] keep top(1, m["loss"], 15)'
    for discard, left in ((False, ["15", "15", "20"]), (True, ["15", "20"])):
        ask(repository, text, discard_checkpoints=discard)
        paths = repository.trials_folder.glob("*/checkpoint/*.ckpt")
        assert sorted(path.name.partition("-")[0] for path in paths) == left


def test_all_checkpoints_become_snapshots(repository: Repository) -> None:
    text = f'{ONE} vary config.base_lr in [0.1, 0.3] keep top(1, m["loss"], 5) into "tuned"'
    found = ask(repository, text, snapshots="all")
    assert found.warnings == []
    (best,) = committed(repository, "tuned")
    assert [each.step for each in best.manifest.snapshots] == [5, 10, 15, 20]
    assert best.manifest.own == 3
    expected = trying.tensors(0)["fc1.weight"]
    for step in range(1, 21):
        expected = expected + np.float32(0.3) * (1 - expected)
        if step % 5 == 0:
            assert np.array_equal(best.at(step).tensor("fc1.weight"), expected)
    assert np.array_equal(best.tensor("fc1.weight"), expected)
    # Of what is a version now no more is kept than usual; of what was stopped the last.
    left = [path.name for path in repository.trials_folder.glob("*/checkpoint/*.ckpt")]
    assert sorted(name.partition("-")[0] for name in left) == ["15", "20", "5"]
    assert list(repository.trials_folder.glob("*/checkpoint/all")) == []


def test_checkpoints_that_are_gone_are_told(repository: Repository) -> None:
    ask(repository, ONE)
    found = ask(repository, f'{ONE} into "tuned"', snapshots="all")
    assert found.warnings == ["tuned@1 has 2 of 4 checkpoints; the others are missing"]
    (best,) = committed(repository, "tuned")
    assert [each.step for each in best.manifest.snapshots] == [15, 20]


def test_all_checkpoints_can_wait_for_a_name(repository: Repository) -> None:
    ask(repository, ONE, snapshots="all")
    found = ask(repository, f'{ONE} into "tuned"', snapshots="all")
    assert found.warnings == []
    (best,) = committed(repository, "tuned")
    assert len(best.manifest.snapshots) == 4


def test_other_data_are_other_trials(repository: Repository) -> None:
    path = repository.root / "rows.npz"
    text = f"{ONE}, config.input_data = 'rows.npz'"
    seen = []
    for scale in (1, 2, 1):
        x = np.full((4, 1, 8, 8), scale, "f4")
        np.savez(path, x=x, y=np.arange(4) % 3)
        seen.append(ask(repository, text, dry_run=True).trials[0].id)
    assert seen[0] == seen[2] != seen[1]


def test_programs_and_functions_of_ones_own_read_what_they_like(repository: Repository) -> None:
    (repository.root / "rows.weird").write_bytes(b"nothing that dlv reads")
    ask(repository, f"{ONE}, config.input_data = 'rows.weird'")
    assert steps(repository) == 20


def test_data_far_away_is_to_be_fetched(repository: Repository) -> None:
    for where, command in (
        ("s3://bucket/rows.npz", "aws s3 cp s3://bucket/rows.npz ."),
        ("https://there.org/rows.npz", "curl -LO https://there.org/rows.npz"),
        ("odd://there/rows.npz", "copy it to this machine"),
    ):
        with pytest.raises(UsageError) as caught:
            ask(repository, f"{ONE}, config.input_data = '{where}'")
        assert caught.value.hint is not None
        assert caught.value.hint.startswith(command)
        assert 'config.input_data = "rows.npz"' in caught.value.hint


def test_saved_queries_are_evaluated(repository: Repository) -> None:
    saved.save_query(
        repository, "small", 'construct d from m where m = "net@1" mutate m["fc1"].out = 2'
    )
    told: list[str] = []
    ask(repository, 'evaluate m from "small" with config = "base.toml"', say=told.append)
    assert told == ["small: 1 network x 1 configuration = 1 trial, <= 20 steps"]


def test_what_was_stopped_goes_on_with_the_same_query(
    repository: Repository, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = f"{ONE} vary config.seed in 0..2"

    def stopping(store: Any, run: str, **_: Any) -> None:
        Ledger(store).stop(run)

    monkeypatch.setattr(pool, "train", stopping)
    found = ask(repository, f'{text} into "none"')
    assert found.state == "stopped"
    assert committed(repository, "none") == []
    monkeypatch.setattr(pool, "train", trying.in_process)
    again = ask(repository, f'{text} into "none"')
    assert again.run == found.run
    assert [each.committed for each in again.trials] == ["none@1", "none@2", "none@3"]
