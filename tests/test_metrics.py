"""Metrics against a slow, literal reference; the edges; the reference rows."""

import csv
import io
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pate.errors import DataError, SettingError
from pate.metrics import (
    COLUMNS,
    all_zeros,
    average_precision,
    compared,
    evaluate,
    gain,
    label_accuracy,
    percent,
    prior_only,
)


def divide(top, bottom):
    return top / bottom if bottom else 0.0


def slow_ap(scores, truth):
    """Area under the step curve of precision over recall, one step per distinct threshold."""
    area, recall = 0.0, 0.0
    for threshold in sorted(set(scores), reverse=True):
        chosen = [t for s, t in zip(scores, truth, strict=True) if s >= threshold]
        area += (sum(chosen) / sum(truth) - recall) * sum(chosen) / len(chosen)
        recall = sum(chosen) / sum(truth)
    return area


def slow_column(scores, truth):
    pairs = [(s >= 0.5, t) for s, t in zip(scores, truth, strict=True)]
    tp, fp, fn = (pairs.count(p) for p in [(True, True), (True, False), (False, True)])
    precision, recall = divide(tp, tp + fp), divide(tp, tp + fn)
    return {
        "accuracy": sum(p == t for p, t in pairs) / len(pairs),
        "precision": precision,
        "recall": recall,
        "f1": divide(2 * precision * recall, precision + recall),
        "ap": slow_ap(scores, truth) if any(truth) else math.nan,
        "prevalence": sum(truth) / len(truth),
    }


@st.composite
def judged(draw):
    """Few distinct probabilities, so that ties and the threshold itself are common."""
    n, k = draw(st.integers(1, 12)), draw(st.integers(1, 5))
    cell = st.sampled_from([0.0, 0.2, 0.5, 0.500001, 0.9, 1.0])
    grid = [[draw(cell) for _ in range(k)] for _ in range(n)]
    truth = [[draw(st.booleans()) for _ in range(k)] for _ in range(n)]
    return np.array(grid), np.array(truth)


@given(judged())
def test_metrics_agree_with_the_literal_reference(case):
    scores, truth = case
    metrics = evaluate(scores, truth)
    slow = [slow_column(scores[:, k].tolist(), truth[:, k].tolist()) for k in range(truth.shape[1])]
    for row, expected in zip(metrics.table(), slow, strict=True):
        assert {c: row[c] for c in COLUMNS} == pytest.approx(expected, nan_ok=True)
    flat = slow_column(scores.ravel().tolist(), truth.ravel().tolist())
    aps = [s["ap"] for s in slow if not math.isnan(s["ap"])]
    assert metrics.mean_accuracy == pytest.approx(flat["accuracy"])
    assert metrics.micro_f1 == pytest.approx(flat["f1"])
    assert metrics.macro_f1 == pytest.approx(sum(s["f1"] for s in slow) / len(slow))
    assert metrics.mean_ap == pytest.approx(sum(aps) / len(aps) if aps else math.nan, nan_ok=True)
    assert metrics.without_positive == len(slow) - len(aps)


@given(judged(), st.randoms())
def test_order_of_records_does_not_matter(case, random):
    scores, truth = case
    order = list(range(len(truth)))
    random.shuffle(order)
    assert evaluate(scores[order], truth[order]).scalars() == pytest.approx(
        evaluate(scores, truth).scalars(), nan_ok=True
    )


def test_known_values():
    truth = np.array([[1, 0], [0, 0], [1, 1], [0, 1]], bool)
    scores = np.array([[0.9, 0.1], [0.8, 0.7], [0.7, 0.6], [0.1, 0.4]])
    metrics = evaluate(scores, truth, ["Smiling", "Wearing_Hat"])
    np.testing.assert_allclose(metrics.ap, [(1 + 2 / 3) / 2, (1 / 2 + 2 / 3) / 2])
    np.testing.assert_allclose(metrics.accuracy, [0.75, 0.5])
    assert metrics.micro_f1 == pytest.approx(2 * 3 / (5 + 4))
    assert average_precision(np.full((10, 1), 0.3), np.arange(10)[:, None] < 3) == pytest.approx(0.3)


def test_one_class_only_leaves_average_precision_out():
    truth = np.array([[True, False], [True, False]])
    metrics = evaluate(truth.astype(float), truth)
    assert metrics.mean_accuracy == metrics.micro_f1 == metrics.mean_ap == 1.0
    assert metrics.macro_f1 == 0.5 and metrics.without_positive == 1
    nothing = evaluate(np.zeros((3, 2)), np.zeros((3, 2), bool))
    assert math.isnan(nothing.mean_ap) and nothing.without_positive == 2 and nothing.mean_accuracy == 1.0


@pytest.mark.parametrize(
    ("scores", "truth", "names", "sentence"),
    [
        (np.array([[np.nan]]), np.array([[True]]), (), "probabilities must be between 0 and 1, got [nan]"),
        (np.array([[1.5]]), np.array([[True]]), (), "got [1.5]"),
        (np.zeros((0, 2)), np.zeros((0, 2), bool), (), "nothing to judge: there are 0 records"),
        (np.zeros((2, 0)), np.zeros((2, 0), bool), (), "of 0 labels"),
        (np.zeros((2, 3)), np.zeros((3, 2), bool), (), "must be (N, K)"),
        (np.zeros((2, 2)), np.zeros((2, 2), bool), ("a",), "1 names"),
        (np.zeros(2), np.zeros(2, bool), (), "must be (N, K)"),
        (np.float64(0.5), np.True_, (), "must be (N, K)"),
    ],
)
def test_what_has_no_figure_is_refused(scores, truth, names, sentence):
    with pytest.raises((DataError, SettingError)) as error:
        evaluate(scores, truth, names)
    assert sentence in str(error.value)


def test_table_and_csv_hold_the_same_rows():
    rng = np.random.default_rng(0)
    metrics = evaluate(rng.random((9, 3)), np.eye(9, 3, dtype=bool), ["a", 'b, "c"', "d"])
    rows = list(csv.DictReader(io.StringIO(metrics.csv())))
    assert [row["attribute"] for row in rows] == ["a", 'b, "c"', "d"]
    for row, exact in zip(rows, metrics.table(), strict=True):
        assert {c: float(row[c]) for c in COLUMNS} == pytest.approx({c: exact[c] for c in COLUMNS}, abs=1e-6)


def test_label_accuracy_looks_at_answered_queries_only():
    truth = np.array([[True, False], [True, True], [False, False]])
    labels = np.array([[True, True], [False, False], [False, False]])
    assert label_accuracy(labels, np.array([True, False, True]), truth) == 0.75
    assert label_accuracy(labels, np.array([False, True, False]), truth) == 0.0
    assert math.isnan(label_accuracy(labels, np.zeros(3, bool), truth))
    with pytest.raises(DataError, match="answered"):
        label_accuracy(labels, np.ones(2, bool), truth)


def test_prior_only_predicts_the_majority_class():
    labels = np.array([[1, 0, 1], [1, 0, 0], [1, 1, 0]], bool)
    truth = np.array([[1, 1, 0], [0, 1, 1]], bool)
    metrics = prior_only(labels, truth, ["a", "b", "c"])
    np.testing.assert_allclose(metrics.accuracy, [0.5, 0.0, 0.5])
    np.testing.assert_allclose(metrics.ap, metrics.prevalence)
    with pytest.raises(SettingError, match="at least one record"):
        prior_only(labels[:0], truth)


def test_all_zeros_is_right_about_everything_that_is_absent():
    truth = np.array([[1, 0, 0], [0, 0, 0]], bool)
    metrics = all_zeros(truth, ["a", "b", "c"])
    np.testing.assert_allclose(metrics.accuracy, [0.5, 1, 1])
    assert metrics.macro_f1 == metrics.micro_f1 == 0 and metrics.mean_ap == 0.5 and metrics.without_positive == 2


def test_gain_is_the_share_of_the_way():
    assert gain(0.8, 0.8, 0.9) == 0 and gain(0.9, 0.8, 0.9) == 1 and gain(0.79, 0.8, 0.9) == pytest.approx(-0.1)
    assert math.isnan(gain(0.8, 0.8, 0.8)) and math.isnan(gain(0.9, 0.8, 0.7))


def test_figures_are_shown_in_columns():
    rows = {"a": dict.fromkeys(("mean_accuracy", "macro_f1", "micro_f1", "mean_ap"), 0.1234)}
    rows["a long name"] = rows["a"] | {"mean_accuracy": 1.0, "mean_ap": None}
    head, one, other = compared(rows).splitlines()
    assert head.split() == ["mean", "accuracy", "macro", "F1", "micro", "F1", "mAP"]
    assert len(head) == len(one) == len(other) and one.count("12.3 %") == 4
    assert other.startswith("a long name ") and "100.0 %" in other and other.endswith("  -")
    assert percent(math.nan) == percent(None) == "-" and percent(0.0) == "0.0 %"


def test_a_matched_prior_says_yes_to_the_most_frequent_labels():
    rates = (0.3, 0.25, 0.2, 0.1)
    labels = np.column_stack([np.arange(100) < 100 * rate for rate in rates])
    truth = np.array([[True, False, True, False], [False, False, False, True]])
    half, matched = (prior_only(labels, truth, decision=how) for how in ("half", "matched"))
    assert half.micro_f1 == 0 and half.mean_ap == matched.mean_ap
    assert matched.accuracy.tolist() == [0.5, 1.0, 0.5, 0.5]  # yes to the first label, which 0.85 of four round to
    everything = prior_only(np.ones((3, 4), bool), truth, decision="matched")
    assert everything.recall.tolist() == [1.0, 0.0, 1.0, 1.0] and everything.prevalence.sum() == 1.5
    nothing = prior_only(np.zeros((3, 4), bool), truth, decision="matched")
    assert nothing.micro_f1 == 0
