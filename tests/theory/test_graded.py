"""The graded form of one chain: equation, gates, anchor, deaths, edges, bad input, and what must fail."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from mutated_module import assert_passes, mutated

from streamgauge.theory import (
    frames,
    graded_anchor,
    graded_batch,
    graded_deaths,
    graded_precise,
    graded_slots,
    recurrence,
)
from streamgauge.theory.chain import Chain
from streamgauge.theory.errors import InputError
from streamgauge.theory.form import NormGate
from streamgauge.theory.graded import graded_form
from streamgauge.theory.graded_benchmark import planted_deaths, sinkhorn_chains
from streamgauge.theory.norm import norm_form
from streamgauge.theory.strategies import deficit_chains, square_chains

LOGITS = Path(__file__).resolve().parents[3] / "shared" / "data" / "trained_logits.json"
RESIDUAL = 1e-14


def cases(count):
    return settings(max_examples=count, deadline=None, derandomize=True, database=None)


def residual(mixers, gauge, gates):
    """max |A P - P' D|, by loops over matrices: independent of the batch's own arithmetic."""
    return max(
        (float(np.abs(a @ p - q @ np.diag(g)).max()) for a, p, q, g in zip(mixers, gauge, gauge[1:], gates)),
        default=0.0,
    )


def condition(gauge):
    return max(float(np.linalg.cond(p)) for p in gauge)


def sinkhorn(seed, sites=40, n=4, sweeps=300):
    return sinkhorn_chains(n=n, sites=sites, chains=1, sweeps=sweeps, seed=seed)[0]


def plain_deaths(mixers, tolerance=1e-13):
    """Control: forward Gram-Schmidt from the plain backward QR frame, zero pivots as deaths, newborns from I."""
    n = mixers.shape[-1]
    frame = np.eye(n)
    for a in mixers[::-1]:
        frame, _ = np.linalg.qr(a.T @ frame)
    found = 0
    columns = list(frame.T)
    for a in mixers:
        kept = []
        for q in columns:
            v = a @ q
            for _ in range(2):
                for u in kept:
                    v = v - (u @ v) * u
            if np.linalg.norm(v) > tolerance * np.linalg.norm(a, 2):
                kept.append(v / np.linalg.norm(v))
            else:
                found += 1
        for v in np.eye(n):
            if len(kept) < n:
                for _ in range(2):
                    for u in kept:
                        v = v - (u @ v) * u
                if np.linalg.norm(v) > 0.3:
                    kept.append(v / np.linalg.norm(v))
        columns = kept
    return found


@cases(60)
@given(deficit_chains(min_n=1, max_n=5, max_sites=10))
def test_doubly_stochastic_chains(planted):
    # an entry of floats: a chain without mixers would count as exact
    form = graded_form(Chain(planted.chain.floating().mixers, entry=np.ones(planted.n)))
    assert residual(form.chain.mixers, form.gauge, form.gates) <= RESIDUAL
    assert form.check(1e-12)
    assert [int((g == 0).sum()) for g in form.gates] == [planted.n - r for r in planted.ranks]
    assert [label.rank for label in form.ranks] == list(planted.ranks)
    assert all(g.max() <= 1 + 1e-9 and g.min() >= 0 for g in form.gates)
    # every doubly stochastic chain has the anchor 1, with gate exactly 1 and one constant
    assert all(g[0] == 1.0 for g in form.gates)
    assert len({float(x) for p in form.gauge for x in p[:, 0]}) == 1


@cases(60)
@given(square_chains(max_n=5, max_sites=8))
def test_planted_bars(planted):
    form = graded_form(Chain(planted.chain.floating().mixers, readout=np.ones(planted.dims[0])))
    size = max([1.0, *(float(np.abs(a).max(initial=0)) for a in form.chain.mixers)])
    assert residual(form.chain.mixers, form.gauge, form.gates) <= RESIDUAL * size
    ranks = [a.rank() for a in planted.mixers]
    assert [int((g == 0).sum()) for g in form.gates] == [planted.dims[0] - r for r in ranks]
    assert len(form.bars) == len(planted.bars)


@pytest.mark.parametrize("kind", ["often", "hidden"])
def test_planted_deaths_are_found(kind):
    for seed in range(8):
        mixers, gates = planted_deaths(kind, np.random.default_rng(seed), n=4, sites=120)
        form = graded_form(Chain(list(mixers)))
        assert [int((g == 0).sum()) for g in form.gates] == (gates == 0).sum(axis=1).tolist()
        assert residual(mixers, form.gauge, form.gates) <= RESIDUAL * max(1.0, np.abs(mixers).max())
        assert form.check()


def hard_chain(seed):
    """A chain whose strong directions die late, with six gauges of condition up to 100."""
    rng = np.random.default_rng(seed)
    n, sites = int(rng.integers(2, 7)), int(rng.integers(20, 121))
    skew = rng.choice([0.0, 0.3, 1.0, 2.0])
    gauge = [
        np.linalg.qr(rng.normal(size=(n, n)))[0] @ (np.eye(n) + skew * np.triu(rng.normal(size=(n, n)), 1))
        for _ in range(sites + 1)
    ]
    gates = np.clip(rng.uniform(0.05, 1, size=n) * rng.uniform(0.7, 1.3, size=(sites, n)), 0.02, 1)
    for _ in range(rng.integers(1, 4)):
        gates[rng.integers(sites), rng.integers(n)] = 0.0
    return np.array([gauge[l + 1] * gates[l] @ np.linalg.inv(gauge[l]) for l in range(sites)]), gates


def test_hidden_deaths_that_a_plain_pass_misses():
    planted = plain = found = 0
    for seed in range(30):
        mixers, gates = hard_chain(seed)
        form = graded_form(Chain(list(mixers)))
        deaths = (gates == 0).sum(axis=1)
        planted += int(deaths.sum())
        plain += plain_deaths(mixers)
        found += sum(int((g == 0).sum()) for g in form.gates)
        assert [int((g == 0).sum()) for g in form.gates] == deaths.tolist(), seed
        assert residual(mixers, form.gauge, form.gates) <= 1e-13 * max(1.0, np.abs(mixers).max())
    assert found == planted
    assert plain < 0.85 * planted  # the control misses many


def test_more_bits_where_float64_gives_up(monkeypatch):
    def gives_up(*_, **__):
        raise graded_slots.HiddenDeath(0)

    mixers = sinkhorn(0, sites=12)
    mixers[5] = mixers[5] @ np.kron(np.eye(2), np.full((2, 2), 0.5))
    planted, _ = planted_deaths("often", np.random.default_rng(3), n=3, sites=15)
    usual = [graded_form(Chain(list(m))) for m in (mixers, planted)]
    monkeypatch.setattr(graded_deaths, "graded_slots", gives_up)
    for given_, before in zip((mixers, planted), usual):
        form = graded_form(Chain(list(given_)))
        assert any("more bits" in note for note in form.notes)
        assert not any("more bits" in note for note in before.notes)
        assert residual(given_, form.gauge, form.gates) <= RESIDUAL
        assert [(g == 0).sum() for g in form.gates] == [(g == 0).sum() for g in before.gates]
        assert form.check()


def test_more_bits_have_an_end(monkeypatch):
    def gives_up(*_, **__):
        raise graded_slots.HiddenDeath(0)

    monkeypatch.setattr(graded_precise, "graded_slots", gives_up)
    with pytest.raises(InputError, match=r"^mixer 0: found no 1 deaths \(n - rank\) in 32768 bits"):
        graded_precise.precise_slots(np.array([np.diag([1.0, 0.0])]), [1], None)


@pytest.mark.parametrize(
    ("entry", "readout"),
    [
        ((1, 1, 1, 1), (1, 1, 1, 1)),
        ((1, 2, 0, 1), (1, 1, 1, 1)),
        ((1, 1, 1, 1), (3, 0, 1, 2)),
        ((1, 0, 2, 1), (0, 1, 1, 5)),
    ],
)
@pytest.mark.parametrize("sweeps", [1, 300])
def test_anchor_is_the_image_of_the_entry(entry, readout, sweeps):
    mixers = sinkhorn(2, sweeps=sweeps)
    entry, readout = np.array(entry, dtype=float), np.array(readout, dtype=float)
    form = graded_form(Chain(list(mixers), entry=entry, readout=readout))
    image = entry
    for a, p in zip([np.eye(4), *mixers], form.gauge):
        image = a @ image
        assert np.linalg.matrix_rank(np.stack([p[:, 0], image]), tol=1e-12) == 1
    assert all(g[0] == 1.0 for g in form.gates)
    # one residual stream; a memory that starts at zero and is not read out
    assert np.abs(form.entry[1:]).max() <= 1e-12 * abs(form.entry[0, 0])
    assert np.abs(form.readout[0, 1:]).max() <= 1e-12 * abs(form.readout[0, 0])
    assert residual(mixers, form.gauge, form.gates) <= RESIDUAL


def test_anchor_is_left_out_where_the_readout_misses_it():
    rotation = np.array([[0.0, -1.0], [1.0, 0.0]])
    form = graded_form(Chain([rotation], entry=[1.0, 0.0], readout=[1.0, 0.0]))
    assert any("no anchor" in note for note in form.notes)
    # a doubly stochastic chain falls back on copy-in and sum-out
    mixers = sinkhorn(3, sites=6)
    image = np.linalg.multi_dot(list(mixers[::-1])) @ np.array([1.0, -1, 0, 0])
    silent = np.array([image[1], -image[0], 0.0, 0.0])
    form = graded_form(Chain(list(mixers), entry=np.array([1.0, -1, 0, 0]), readout=silent))
    assert "slot 0 is the anchor" in form.notes
    assert np.ptp(form.gauge[3][:, 0]) == 0


@pytest.mark.parametrize("axis", [-1, -2])
def test_column_norm_keeps_gates_at_most_one(axis):
    rng = np.random.default_rng(5)
    worst = 0.0
    for _ in range(20):
        mixers = rng.exponential(size=(20, 4, 4)) ** 3
        mixers /= mixers.sum(axis=axis, keepdims=True)
        form = graded_form(Chain(list(mixers)))
        assert ("max norm" if axis == -1 else "1-norm") in form.notes[0]
        assert max(g.max() for g in form.gates) <= 1 + 1e-12
        worst = max(worst, max(np.linalg.norm(a, 2) for a in mixers))
        assert residual(mixers, form.gauge, form.gates) <= RESIDUAL
    assert worst > 1.2  # control: the 2-norm would not do


def test_gates_beyond_one():
    rng = np.random.default_rng(1)
    mixers = rng.normal(size=(60, 5, 5))
    form = graded_form(Chain(list(mixers)))
    assert max(g.max() for g in form.gates) > 1.5
    assert residual(mixers, form.gauge, form.gates) <= RESIDUAL
    assert form.check()


@pytest.mark.parametrize("n", [1, 2, 5])
@pytest.mark.parametrize("sites", [0, 1, 3])
@pytest.mark.parametrize("kind", ["zero", "identity", "averages", "gaussian"])
def test_edges(n, sites, kind):
    made = {
        "zero": np.zeros((n, n)),
        "identity": np.eye(n),
        "averages": np.full((n, n), 1 / n),
        "gaussian": np.random.default_rng(n).normal(size=(n, n)),
    }[kind]
    form = graded_form(Chain([made] * sites, entry=np.ones(n)))
    assert form.check()
    dead = {"zero": n, "averages": n - 1}.get(kind, 0)
    assert [int((g == 0).sum()) for g in form.gates] == [dead] * sites
    assert len(form.bars) == n + dead * sites
    assert len(form.ranks) == sites


@pytest.mark.parametrize("exponent", [-300, -150, 150, 300])
def test_extreme_scales(exponent):
    mixers = np.random.default_rng(4).normal(size=(8, 3, 3))
    mixers[::2] *= 10.0**exponent
    form = graded_form(Chain(list(mixers)))
    sizes = np.abs(mixers).max(axis=(1, 2))
    gaps = np.abs(mixers @ np.array(form.gauge[:-1]) - np.array(form.gauge[1:]) * np.array(form.gates)[:, None, :])
    assert (gaps.max(axis=(1, 2)) <= RESIDUAL * sizes).all()
    assert all((g > 0).all() for g in form.gates)


def test_gates_outside_float64_are_refused():
    for mixer in (np.full((2, 2), 1.7e308), np.array([[3000, 3000], [3000, 3001]]) * 5e-324):
        with pytest.raises(InputError, match=r"^mixer 0: gate \d is .* expected within the range of float64$"):
            graded_form(Chain([mixer]))


@pytest.mark.parametrize(
    ("chain", "options", "message"),
    [
        (
            Chain([np.ones((2, 3))]),
            {},
            "mixer 0: found 3 streams in and 2 out, expected a square chain; the binary form takes rectangular ones",
        ),
        (Chain([np.eye(2)]), {"tolerance": 1.0}, "tolerance: found 1.0, expected at least 0 and below 1"),
        (Chain([np.eye(2)]), {"tolerance": float("nan")}, "tolerance: found nan, expected at least 0 and below 1"),
        (Chain([[[1]]]), {"tolerance": 0.1}, "tolerance: found 0.1 on an exact chain, expected none"),
    ],
)
def test_bad_input(chain, options, message):
    with pytest.raises(InputError) as error:
        graded_form(chain, **options)
    assert str(error.value).startswith(message)
    assert "\n" not in str(error.value)


def test_tolerance_decides_the_rank():
    mixers = [np.diag([1.0, 1e-6])]
    strict, loose = graded_form(Chain(mixers)), graded_form(Chain(mixers), tolerance=1e-5)
    assert (strict.ranks[0].rank, loose.ranks[0].rank) == (2, 1)
    assert loose.ranks[0].largest_dropped == pytest.approx(1e-6)
    assert loose.ranks[0].smallest_kept == pytest.approx(1.0)
    assert loose.ranks[0].tolerance == pytest.approx(1e-5)
    assert np.isnan(strict.ranks[0].largest_dropped)
    assert (loose.gates[0] == 0).sum() == 1


def test_norm_gate_on_top():
    form = norm_form(graded_form(Chain(list(sinkhorn(6)))), NormGate())
    assert form.check()


@pytest.mark.skipif(not LOGITS.exists(), reason="the trained logits are not here")
def test_trained_logits():
    logits = np.array([site["logits"] for site in json.loads(LOGITS.read_text())["sites"]])
    mixers = np.exp(logits - logits.max(axis=(1, 2), keepdims=True))
    for _ in range(4000):
        mixers /= mixers.sum(axis=-1, keepdims=True)
        mixers /= mixers.sum(axis=-2, keepdims=True)
    form = graded_form(Chain(list(mixers)))
    assert condition(form.gauge) <= 1.5
    sigma = np.linalg.svd(np.linalg.multi_dot(list(mixers[::-1])), compute_uv=False)
    assert sigma == pytest.approx([1, 0.343, 0.0436, 0.00398], rel=2e-3)
    assert sigma[0] / sigma[-1] == pytest.approx(251.1, abs=0.1)


def test_controls_miss():
    mixers = sinkhorn(7)
    form = graded_form(Chain(list(mixers)))
    gauge, gates = list(form.gauge), list(form.gates)
    assert residual(mixers, gauge, gates) <= RESIDUAL
    assert residual(mixers, [p.T for p in gauge], gates) > 1e-3
    assert residual(mixers[1:], gauge, gates) > 1e-3
    assert residual(mixers, [gauge[0], *gauge[:-1]], gates) > 1e-3
    assert residual(mixers, [np.linalg.inv(p) for p in gauge], gates) > 1e-3
    assert residual(mixers, gauge, [g[::-1] for g in gates]) > 1e-3


def battery():
    """What a mutant must survive: the anchor, the equation, deaths without more bits."""
    mixers = sinkhorn(8, sweeps=2)
    entry, readout = np.array([1.0, 2, 0, 1]), np.array([0.0, 1, 1, 5])
    form = graded_form(Chain(list(mixers), entry=entry, readout=readout))
    assert residual(mixers, form.gauge, form.gates) <= RESIDUAL
    assert np.abs(form.entry[1:]).max() <= 1e-12
    for kind in ("often", "hidden"):
        for seed in range(3):
            planted, gates = planted_deaths(kind, np.random.default_rng(seed), n=4, sites=60)
            form = graded_form(Chain(list(planted)))
            assert residual(planted, form.gauge, form.gates) <= RESIDUAL
            assert [int((g == 0).sum()) for g in form.gates] == (gates == 0).sum(axis=1).tolist()
            assert not any("more bits" in note for note in form.notes)
            assert condition(form.gauge) <= 1e4


MUTANTS = {
    "anchor not set": (
        graded_anchor,
        "use = found.cosine >= LEAST_COSINE",
        "use = found.cosine > 2",
        "choose_anchor",
        graded_batch,
    ),
    "C is the identity": (frames, "c[:, :, i, j] = solve(", "_ = solve(", "covariant_columns", frames),
    "C in the wrong place": (frames, "c[:, :, i, j] = solve(", "c[:, :, j, i] = solve(", "covariant_columns", frames),
    "births placed first": (
        graded_slots,
        "lives.insert(len(lives) if last else lives.index(order[place]),",
        "lives.insert(0,",
        "graded_slots",
        graded_deaths,
    ),
    "the wrong slot dies": (
        graded_slots,
        "else place not in chosen",
        "else place in chosen",
        "graded_slots",
        graded_deaths,
    ),
    "coefficients with the wrong sign": (
        recurrence,
        "(own[l] * x[l + 1] - ",
        "(own[l] * x[l + 1] + ",
        "solved",
        graded_slots,
    ),
}


@pytest.mark.parametrize("name", MUTANTS)
def test_mutants_die(name, monkeypatch):
    source, old, new, function, user = MUTANTS[name]
    monkeypatch.setattr(user, function, getattr(mutated(source, old, new), function))
    if name == "the wrong slot dies":
        monkeypatch.setattr(graded_deaths, "ILL", 0.0)  # so that its candidates are tried
    with pytest.raises((AssertionError, InputError, ArithmeticError, LookupError, ValueError)):
        battery()


def test_unmutated_battery():
    assert_passes(battery)
