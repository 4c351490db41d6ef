"""Computes every table again with SciPy and compares at 1e-9 relative.

Usage: check.py TABLES. Prints "N passed, N failed" last; exit 1 when any failed or when
there is nothing to compare.

Fisher is scipy.stats.fisher_exact, McNemar is scipy.stats.binomtest at 1/2. The interval is
that of binomtest(...).proportion_ci(method="exact"), whose root finder stops at 2e-12
absolute: below 0.002 that is coarser than 1e-9 relative, so there (and beside it everywhere)
the bounds are compared with the Beta quantiles that define them.
"""

import json
import sys

from scipy.stats import beta, binomtest, fisher_exact

TOLERANCE = 1e-9


def fisher(a, b, c, d):
    t = [[a, b], [c, d]]
    # "less" is about the first row's odds: the second row is the higher one
    yield "one_sided", fisher_exact(t, alternative="less").pvalue
    yield "two_sided", fisher_exact(t).pvalue


def mcnemar(b, c):
    if b + c == 0:
        yield "one_sided", 1.0
        yield "two_sided", 1.0
        return
    yield "one_sided", binomtest(b, b + c, 0.5, alternative="less").pvalue
    yield "two_sided", binomtest(b, b + c, 0.5).pvalue


def clopper_pearson(k, n):
    low = lambda tail: 0.0 if k == 0 else beta.ppf(tail, k, n - k + 1)
    high = lambda tail: 1.0 if k == n else beta.isf(tail, k + 1, n - k)
    yield "low2", low(0.025)
    yield "high2", high(0.025)
    yield "low1", low(0.05)
    yield "high1", high(0.05)
    ci = binomtest(k, n).proportion_ci(0.95, method="exact")
    for name, v in (("low2", ci.low), ("high2", ci.high)):
        if v == 0 or v >= 0.002:
            yield name, v


TESTS = {"fisher": fisher, "mcnemar": mcnemar, "clopper-pearson": clopper_pearson}


def main(path):
    passed, failed, worst = {}, {}, {}
    for line in open(path):
        t = json.loads(line)
        name = t["test"]
        ok = True
        for what, want in TESTS[name](*t["in"]):
            got = t["out"][what]
            off = abs(got - want) / abs(want) if want else abs(got)
            worst[name] = max(worst.get(name, 0.0), off)
            if not off <= TOLERANCE:
                ok = False
                print(f"{name} {t['in']} {what}: {got!r} here, {want!r} in SciPy, off by {off:.3g}")
        count = passed if ok else failed
        count[name] = count.get(name, 0) + 1
    for name in TESTS:
        print(f"{name}: {passed.get(name, 0)} passed, {failed.get(name, 0)} failed, largest difference {worst.get(name, 0):.2g}")
    print(f"{sum(passed.values())} passed, {sum(failed.values())} failed")
    return 1 if failed or any(name not in passed for name in TESTS) else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
