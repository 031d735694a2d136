"""Costs, conversions and calibration against tables, other libraries and the optimum over all orders."""

import json
from pathlib import Path

import numpy as np
import pytest
from dp_accounting import GaussianDpEvent, LaplaceDpEvent, SelfComposedDpEvent, get_epsilon_gaussian
from dp_accounting.pld import PLDAccountant
from dp_accounting.rdp import RdpAccountant
from scipy.optimize import minimize_scalar

from pate.accounting import PrivacyCost, calibrate, total
from pate.accounting.conversion import ORDERS, tight_epsilon
from pate.accounting.events import BoundedRange, Concentrated, Gaussian, Laplace, NoisyMax, Pure
from pate.errors import SettingError
from pate.mechanisms import GaussianChoice, GumbelChoice, NoisyCounts, StableTopK, TauBallots

EVENTS = [Gaussian(0.3), Laplace(0.3), BoundedRange(0.3), Pure(0.3), Concentrated(0.02), NoisyMax(39, 0.1)]


def cost_of(event, count=1, delta=0.0):
    return PrivacyCost.of(event, delta=delta, neighbours="teacher_added") * count


@pytest.fixture(scope="module")
def references(shared_data: Path) -> list[dict]:
    path = shared_data.parent / "reference_epsilons.json"
    if not path.exists():
        pytest.skip(f"{path.name} is not beside the real data")
    return json.loads(path.read_text())["epsilons"]


def from_reference(row: dict):
    common = {"num_labels": row["num_labels"], "neighbours": row["neighbours"], "sigma": row["sigma"]}
    if row["mechanism"] == "NoisyCounts":
        return NoisyCounts(**common)
    if row["mechanism"] == "TauBallots":
        return TauBallots(tau=row["tau"], **common)
    gumbel = row["choose"] == "GumbelChoice"
    choose = GumbelChoice(row["scale"]) if gumbel else GaussianChoice(row["choose_sigma"])
    return StableTopK(choose=choose, delta_t=row["delta_t"], **common)


def test_independently_computed_epsilons(references):
    seen = 0
    for row in references:
        cost = from_reference(row).cost(row["queries"])
        for conversion in {"tight", "published", "exact"} & set(row):
            assert cost.epsilon(row["delta"], conversion) == pytest.approx(row[conversion], rel=1e-4)
            seen += 1
    assert seen >= 2 * len(references) > 100


SECTION_4 = {  # choice, neighbours -> published, tight
    ("gaussian", "teacher_added"): (7.57, 6.95),
    ("gumbel", "teacher_added"): (4.35, 3.92),
    ("gaussian", "teacher_changed"): (16.91, 15.95),
    ("gumbel", "teacher_changed"): (9.26, 8.58),
}


@pytest.mark.parametrize(("choice", "neighbours"), SECTION_4)
def test_what_the_main_papers_table_really_costs(choice, neighbours):
    choose = GaussianChoice(50.0) if choice == "gaussian" else GumbelChoice(50 * np.sqrt(6) / np.pi)
    m = StableTopK(num_labels=40, choose=choose, sigma=60.0, delta_t=1e-9, neighbours=neighbours)
    cost = m.cost(600)
    got = tuple(round(cost.epsilon(1e-6, conversion), 2) for conversion in ("published", "tight"))
    assert got == SECTION_4[choice, neighbours]


def test_the_published_figure_is_there_and_is_no_cost():
    m = StableTopK(num_labels=40, choose=GaussianChoice(50.0), sigma=60.0, delta_t=1e-9, neighbours="teacher_added")
    figure = m.as_published(600)
    assert [round(figure.epsilon(1e-6, how), 3) for how in ("published", "tight", "exact")] == [3.665, 3.278, 3.071]
    assert "not a guarantee" in str(figure) and not isinstance(figure, PrivacyCost)
    with pytest.raises(TypeError):
        m.cost(1) + figure
    assert figure.epsilon(1e-6) < m.cost(600).epsilon(1e-6)


CURVES_BESIDE = {  # other valid charges for choosing k in section 4, converted as (published, tight)
    "teacher_added": {
        "Corollary 9, log 40": (71.42, 71.34),
        "Corollary 9, log 39": (71.18, 71.10),
        "gaps": (21.52, 20.48),
    },
    "teacher_changed": {"Corollary 9, log 39": (143.5, 143.3), "gaps": (52.56, 51.08)},
}


@pytest.mark.parametrize("neighbours", CURVES_BESIDE)
def test_other_valid_charges_of_section_4(neighbours):
    from pate.accounting import noisy_max
    from pate.accounting.conversion import published_epsilon

    reach = 1 if neighbours == "teacher_added" else 2
    test = 600 * ORDERS * reach**2 / (2 * 60**2)
    for name, printed in CURVES_BESIDE[neighbours].items():
        if name == "gaps":
            choice = noisy_max.gap_vector(ORDERS, 39 * (reach / 50) ** 2)
        else:
            choice = noisy_max.union(ORDERS, int(name[-2:]), reach / 50)
        got = [convert(600 * choice + test, 4e-7) for convert in (published_epsilon, tight_epsilon)]
        assert got == pytest.approx(printed, rel=6e-4)


@pytest.mark.parametrize("event", EVENTS, ids=lambda event: type(event).__name__)
@pytest.mark.parametrize("count", [1, 30, 3000])
@pytest.mark.parametrize("delta", [1e-3, 1e-6, 1e-12])
def test_orders_are_dense_enough(event, count, delta):
    def at(log_order: float) -> float:
        alpha = np.array([1 + np.exp(log_order)])
        curve = count * event.rdp(alpha)
        return float((curve + np.log1p(-1 / alpha) - (np.log(delta) + np.log(alpha)) / (alpha - 1))[0])

    grid = np.linspace(np.log(1e-3), np.log(1e6), 400)
    best = grid[np.argmin([at(x) for x in grid])]
    optimum = minimize_scalar(at, bounds=(best - 0.1, best + 0.1), method="bounded", options={"xatol": 1e-9}).fun
    ours = tight_epsilon(count * event.rdp(ORDERS), delta)
    assert ours <= max(0.0, optimum) * (1 + 2e-5) + 1e-12


ORDERS_OF_OTHERS = [1.1, 1.5, 2.0, 3.0, 5.0, 8.0, 16.0, 32.0, 64.0, 256.0, 1024.0]


@pytest.mark.parametrize("count", [1, 50, 5000])
@pytest.mark.parametrize("noise", [1.0, 8.0, 100.0])
@pytest.mark.parametrize(("event", "theirs"), [(Gaussian, GaussianDpEvent), (Laplace, LaplaceDpEvent)])
def test_dp_accounting_agrees_on_its_orders_and_is_never_below_on_ours(event, theirs, noise, count):
    accountant = RdpAccountant(ORDERS_OF_OTHERS)
    accountant.compose(SelfComposedDpEvent(theirs(noise), count))
    curve = count * event(1 / noise).rdp(np.array(ORDERS_OF_OTHERS))
    assert curve == pytest.approx(np.asarray(accountant._rdp), rel=1e-6)
    assert cost_of(event(1 / noise), count).epsilon(1e-6) <= accountant.get_epsilon(1e-6) * (1 + 1e-9)
    delta, alpha = 1e-6, np.array(ORDERS_OF_OTHERS)
    converted = np.min(curve + np.log1p(-1 / alpha) - np.log(delta * alpha) / (alpha - 1))
    assert converted == pytest.approx(accountant.get_epsilon(delta), rel=1e-6)


def test_opacus_agrees():
    from opacus.accountants.analysis.rdp import compute_rdp, get_privacy_spent

    for sigma in (0.7, 5.0):
        curve = 40 * Gaussian(1 / sigma).rdp(np.array(ORDERS_OF_OTHERS))
        theirs = compute_rdp(q=1.0, noise_multiplier=sigma, steps=40, orders=ORDERS_OF_OTHERS)
        assert curve == pytest.approx(np.asarray(theirs), rel=1e-6)
        epsilon, _ = get_privacy_spent(orders=ORDERS_OF_OTHERS, rdp=theirs, delta=1e-5)
        assert cost_of(Gaussian(1 / sigma), 40).epsilon(1e-5) <= epsilon * (1 + 1e-9)


@pytest.mark.parametrize("count", [1, 20, 600])
@pytest.mark.parametrize("ratio", [0.02, 0.3])
def test_privacy_loss_distributions_lie_below_and_not_far(ratio, count):
    for event, theirs in ((Gaussian(ratio), GaussianDpEvent(1 / ratio)), (Laplace(ratio), LaplaceDpEvent(1 / ratio))):
        accountant = PLDAccountant(value_discretization_interval=1e-4)
        accountant.compose(SelfComposedDpEvent(theirs, count))
        exact = accountant.get_epsilon(1e-5)
        ours = cost_of(event, count).epsilon(1e-5)
        assert exact <= ours * 1.001 + 1e-3
        assert ours <= exact * 1.35 + 0.05
        if isinstance(event, Gaussian):
            assert cost_of(event, count).epsilon(1e-5, "exact") == pytest.approx(exact, rel=2e-3, abs=2e-3)


@pytest.mark.parametrize("mu", [1e-3, 0.1, 1.0, 7.0])
@pytest.mark.parametrize("delta", [1e-2, 1e-5, 1e-12])
def test_exact_gaussian_epsilon(mu, delta):
    ours = cost_of(Gaussian(mu)).epsilon(delta, "exact")
    assert ours == pytest.approx(get_epsilon_gaussian(1 / mu, delta), rel=1e-6, abs=1e-9)
    assert ours <= cost_of(Gaussian(mu)).epsilon(delta) + 1e-12


def test_exact_is_refused_where_something_is_not_gaussian():
    with pytest.raises(SettingError, match="unless every event is Gaussian"):
        cost_of(Laplace(0.1)).epsilon(1e-6, "exact")


def test_randomised_response_is_the_pure_curve():
    epsilon, alpha = 0.7, np.array([1.0001, 1.5, 2.0, 9.0, 400.0])
    p = np.exp(epsilon) / (1 + np.exp(epsilon))
    exact = np.logaddexp(
        alpha * np.log(p) + (1 - alpha) * np.log(1 - p), alpha * np.log(1 - p) + (1 - alpha) * np.log(p)
    )
    assert Pure(epsilon).rdp(alpha) == pytest.approx(exact / (alpha - 1), rel=1e-9)


@pytest.mark.parametrize("event", EVENTS, ids=lambda event: type(event).__name__)
def test_curves_rise_with_the_order_and_vanish_with_the_signal(event):
    curve = event.rdp(ORDERS)
    assert (np.diff(curve) >= -1e-12 * curve[1:]).all() and (curve > 0).all()
    parameters = [value for name, value in vars(event).items() if name != "candidates"]
    rest = {name: value for name, value in vars(event).items() if name == "candidates"}
    assert len(parameters) == 1
    name = next(key for key in vars(event) if key != "candidates")
    assert (type(event)(**rest, **{name: 0.0}).rdp(ORDERS) == 0).all()
    assert np.isinf(type(event)(**rest, **{name: np.inf}).rdp(ORDERS)).all()


def test_delta_adds_and_too_small_a_delta_names_the_smallest():
    cost = cost_of(Gaussian(0.01), 600, delta=1e-9)
    assert cost.delta == pytest.approx(6e-7)
    with pytest.raises(SettingError, match=r"delta must be > 6e-07, the sum of the queries' delta_t, got 5e-07"):
        cost.epsilon(5e-7)


def test_an_approximate_mechanism_alone_costs_its_own_epsilon_at_its_own_delta():
    assert cost_of(Pure(0.3), 1, delta=1e-6).epsilon(1e-6) == pytest.approx(0.3)
    assert cost_of(Pure(0.3), 4, delta=1e-6).epsilon(4e-6) == pytest.approx(1.2)


@pytest.mark.parametrize("delta", [0.0, 1.0, -1e-6, 2.0, float("nan")])
def test_delta_outside_its_range_is_refused(delta):
    with pytest.raises(SettingError, match="delta must be in"):
        cost_of(Gaussian(1.0)).epsilon(delta)


def test_costs_of_different_neighbours_do_not_add():
    with pytest.raises(SettingError, match="neighbours must be the same"):
        cost_of(Gaussian(1.0)) + PrivacyCost.of(Gaussian(1.0), neighbours="teacher_changed")


def test_nothing_is_the_neutral_element():
    cost = cost_of(Laplace(0.5), 3, delta=1e-8)
    assert (PrivacyCost() + cost).epsilon(1e-6) == cost.epsilon(1e-6)
    assert total([cost, PrivacyCost(), cost]).epsilon(1e-6) == (cost * 2).epsilon(1e-6)


def test_order_of_composition_does_not_matter():
    costs = [cost_of(event, count) for count, event in enumerate(EVENTS, 1)]
    assert total(costs).epsilon(1e-6) == pytest.approx(total(costs[::-1]).epsilon(1e-6), rel=1e-12)


def test_a_million_queries_are_as_easily_counted_as_one():
    many = cost_of(Gaussian(1e-3), 10**6)
    assert len(many.counted) == 1
    assert many.epsilon(1e-6, "exact") == pytest.approx(get_epsilon_gaussian(1.0, 1e-6), rel=1e-6)


@pytest.mark.parametrize(
    ("wrong", "sentence"),
    [
        ({"epsilon": 0.0}, "epsilon must be > 0"),
        ({"epsilon": float("inf")}, "epsilon must be > 0 and finite"),
        ({"delta": 1.0}, "delta must be in"),
        ({"queries": 0}, "queries must be a whole number >= 1"),
        ({"neighbours": "everyone"}, "neighbours must be one of"),
        ({"split": 1.0}, "split must be in"),
        ({"choose": "uniform"}, "choose must be gumbel, gaussian"),
    ],
)
def test_impossible_requests_say_why(wrong, sentence):
    wanted = {"epsilon": 1.0, "delta": 1e-6, "queries": 10, "num_labels": 5} | wrong
    with pytest.raises(SettingError, match=sentence):
        calibrate(StableTopK, **wanted)
