"""What the scripts of this folder share: a check, its line, and the engine's counters."""

import sys
import traceback
import urllib.request


def run(checks, must_fail, show=lambda: None):
    """Runs checks, functions that return one line of what they saw; prints a
    line for each; exits 1 when one failed.

    With must_fail, a check passes by failing: it was given an engine that lacks
    what the check looks for. Only an AssertionError counts as failing so; any
    other exception is a fault of the check. show prints more about the last one.
    """
    bad = 0
    for check in checks:
        name = check.__name__
        try:
            saw, held = check(), True
        except AssertionError as err:
            saw, held = str(err).replace("\n", " ") or "assertion failed", False
        except Exception as err:  # a client's own error is a failure as well
            traceback.print_exc()
            show()
            print(f"not ok - {name}: {type(err).__name__}: {err}".replace("\n", " "), flush=True)
            bad += 1
            continue
        if must_fail:
            name += " turns red"
        good = held != must_fail
        if not good:
            show()
            bad += 1
        print(f"{'ok' if good else 'not ok'} - {name}: {saw}", flush=True)
    sys.exit(1 if bad else 0)


def counters(base):
    """The samples of GET /metrics, summed over the ranks: "name" or
    "name{finished_reason=...}" to number."""
    out = {}
    with urllib.request.urlopen(base + "/metrics", timeout=30) as page:
        for line in page.read().decode().splitlines():
            if line.startswith("#"):
                continue
            series, value = line.rsplit(" ", 1)
            name, _, labels = series.partition("{")
            for label in labels.rstrip("}").split(","):
                if label.startswith("finished_reason="):
                    name += "{" + label.replace('"', "") + "}"
            out[name] = out.get(name, 0.0) + float(value)
    return out
