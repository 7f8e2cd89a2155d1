"""The rank-deficient counterexample: ``x1 + x2 + phi(phi(x1 - x2))`` needs a reset, and pure iHC has none.

- ``activations``: branches, their tails, and which of them the theorem covers.
- ``tails``: the tail bounds with explicit constants, on the whole ray, in ball arithmetic.
- ``networks``: two-site networks over any ring, and those of the story.
- ``matching``: both cases of the proof, on symbols and on given networks.
- ``algebra``: the polynomial systems, their cofactors, and a zero of each once one polynomial is dropped.
- ``boxed``: the version inside mHC's sigmoid boxes, with its equality case.
- ``controls``: what can be represented: biases, plain activations, one more stream.
- ``family``: the approximating networks with weights 1/eps, in float64 and float32.
- ``search``: least squares as an adversary.
- ``story``: all of it as figures.

**Theorem.**  Let every branch G be locally bounded with ``G(z) = kappa_pm z^2 + const_pm + o(1)`` at both ends, and
phi such a branch with constants 0 and ``kappa_+ > 0``.  Then no two-site pure iHC with two streams, Y_0 = x, any
static reads and writes and any linear head computes ``x1 + x2 + phi(phi(x1 - x2))``.

**Proof.**  Put Q = x1 - x2, S = x1 + x2; fix S and let Q go to +infinity.  With ``a.x = c Q + c' S``,
``b.x = d Q + f S``, ``gamma = b.u``, ``alpha = h.u``, ``beta = h.v`` the network is
``h.x + alpha G1(a.x) + beta G2(b.x + gamma G1(a.x))``.  Let kappa be the constant of G1 at the end that ``c Q``
goes to.  (i) If ``gamma kappa c = 0`` the inner argument is O(Q) and the network O(Q^2): no Q^4.  (ii) Otherwise the
argument goes to ``sgn(gamma kappa)`` infinity; with lambda the constant of G2 there, k = kappa c^2, p = kappa c c',

    Q^4: beta lambda gamma^2 k^2,    Q^3: 2 beta lambda gamma k (2 gamma p S + d),
    Q^2: beta lambda ((2 gamma p S + d)^2 + 2 gamma k (gamma kappa c'^2 S^2 + f S + const)) + alpha k,

and everything else is o(Q^2).  The target has Q^4 and neither Q^3 nor Q^2, for every S.  So p = 0 and d = 0 from
Q^3, then f = 0 from the coefficient of S in Q^2: b = 0 and gamma = b.u = 0, against (ii).

The essay's route adds ``G(z) = o(z)`` at 0, which gives h = (1, 1), and works on S = 0: d = 0, alpha = 0, hence b is
parallel to (1, 1) and u to (1, -1), so gamma = 0.  It needs less of the plane and is what the six polynomials encode.
The route above needs no condition at 0, so it also settles biases of the down-projection, any head, and n streams
(the directions orthogonal to Q take the part of S).
"""
