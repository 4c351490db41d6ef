"""The programs of cache-pressure against a running engine.

    cache_pressure_tools.py URL WORKDIR LOG [--must-fail]

Each check runs a program as a user would, reads the verdict it prints and the
results it writes, and holds them against the engine's own counters and LOG.
With --must-fail the engine has its prefix cache off: the programs that look for
reuse have to say so, and the checks with them.

Some programs tell reuse from its absence by the time to the first token. A
machine that stalls for a tenth of a second makes them err, so where the engine
knows better the program gets another try on an empty cache, five in all: it
would ask for the very same texts again.

The programs size their contexts at a quarter of a token for each character; to
this model their text is five sixths of one, so the sizes here look small.
"""

import argparse
import json
import pathlib
import re
import subprocess
import sys
import time
import urllib.request

import checks

args = argparse.ArgumentParser()
args.add_argument("url")
args.add_argument("workdir", type=pathlib.Path)
args.add_argument("log", type=pathlib.Path)
args.add_argument("--must-fail", action="store_true")
args = args.parse_args()

HERE = pathlib.Path(__file__).resolve().parent
TRIES = 1 if args.must_fail else 5
BIN = pathlib.Path(sys.executable).parent  # of the venv


said_last = []  # what the program last used printed


def show():
    print(re.sub("(?m)^", "    ", "".join(said_last).rstrip()), flush=True)


def use(label, program, *flags):
    """Runs a program and returns exit status, output and results. Whatever it
    says stands in WORKDIR/label.log."""
    results = args.workdir / (label + ".json")
    results.unlink(missing_ok=True)
    done = subprocess.run(
        [*program, "--base-url", args.url + "/v1", "--output", results, *flags],
        stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=300,
    )
    (args.workdir / (label + ".log")).write_text(done.stdout)
    said_last[:] = [done.stdout]
    assert "Traceback" not in done.stdout, f"{label} broke down, see {label}.log"
    assert results.exists(), f"{label} wrote no results, see {label}.log"
    return done.returncode, done.stdout, json.loads(results.read_text())


def since(before, name):
    return checks.counters(args.url)[name] - before[name]


def empty_cache():
    urllib.request.urlopen(urllib.request.Request(args.url + "/reset_prefix_cache", method="POST"), timeout=30).close()


def needle_lines(results):
    for r in results["results"]:
        assert r["error"] is None, f"needle-test at {r['target']}: {r['error']}"
        assert abs(r["prompt_tokens"] - r["target"]) < 0.1 * r["target"] + 150, f"sized {r['prompt_tokens']} for {r['target']}"
        assert r["response"].strip(), f"empty response at {r['target']}"


def needle_test():
    """As published. The model cannot know what a secret code is: none may be
    found, and that is also what a needle-test that fails looks like here."""
    status, said, results = use("needle-test", [BIN / "needle-test"], "--lengths", "1000,3000", "--max-tokens", "16")
    needle_lines(results)
    assert "RESULT: 0/2 needles found" in said and status == 1, f"status {status}, want 1 and 0/2 found"
    return "ran to its verdict, 0/2 found, as it must be in a language the model does not read"


def needle_test_in_its_grammar():
    status, said, results = use(
        "needle-test-grammar", [sys.executable, HERE / "needle_grammar.py"],
        "--lengths", "500,1000,2000,3000,3800", "--max-tokens", "8", "--needle-pos", "0.3", "--salt", "7",
    )
    needle_lines(results)
    assert "RESULT: 5/5 needles found" in said and status == 0, f"status {status}: " + said.strip().splitlines()[-1]
    return "5/5 found, at 500 to 3,800 tokens"


def from_cache(rows):
    """Whether each request of rows found most of its prompt cached, by the
    engine's log. A request is logged a little after its answer, so this waits
    until the log ends in their prompts."""
    want, end = [x["prompt_tokens"] for x in rows], time.monotonic() + 10
    while True:
        lines = re.findall(r" prompt=(\d+) local=(\d+) .* finish=", args.log.read_text())[-len(want):]
        if [int(prompt) for prompt, _ in lines] == want:
            return [2 * int(local) > int(prompt) for prompt, local in lines]
        assert time.monotonic() < end, f"the log ends in prompts of {[int(p) for p, _ in lines]} tokens, want {want}"
        time.sleep(0.05)


def cache_pressure():
    capacity = 2048 * 16
    for again in reversed(range(TRIES)):
        before = checks.counters(args.url)
        status, said, r = use("cache-pressure", [BIN / "cache-pressure"], "--kv-size", str(capacity), "--context-tokens", "3700")
        hit = [x["hit"] for x in r["verify"]]
        took = from_cache(r["hydrate"] + r["verify"])[-len(hit):]
        if took == hit or not again:
            break
        print("    cache-pressure erred by its clock, once more", flush=True)
        empty_cache()
    assert status == 0, f"status {status}"
    assert took == hit, f"the tool takes {sum(hit)} contexts for cached, the engine logged {sum(took)} of them"
    rows = r["hydrate"] + r["verify"]
    assert not [x for x in rows if x["error"]], "a request failed"
    assert sum(x["prompt_tokens"] for x in r["hydrate"]) > capacity, "the contexts did not overflow the cache"
    assert "Threshold calibrated" in said, "no difference between a cold and a cached prompt"
    retained, gone = r["retained_tokens"], r["oldest_evicted_index"]
    hits = since(before, "vllm:prefix_cache_hits_total")
    assert hits >= 0.9 * retained, f"the tool takes {retained} tokens for retained, the engine counted {hits:.0f} hits"
    assert 0.6 * capacity <= retained <= capacity, f"retained {retained} of {capacity} tokens"
    assert gone is not None and f"oldest evicted:      context #{gone}" in said, "nothing was evicted"
    assert f"retained contexts:   {r['retained']}/{r['num_contexts']}" in said, "no verdict"
    return f"retained {retained} of {capacity} tokens, {r['retained']}/{r['num_contexts']} contexts, oldest evicted #{gone}"


def agent_sim():
    for again in reversed(range(TRIES)):
        before = checks.counters(args.url)
        status, said, r = use(
            "agent-sim", [BIN / "agent-sim"], "--no-viz", "--sessions", "2", "--max-tokens", "16",
            "--main-tokens", "750", "--step-tokens", "250", "--sub-tokens", "200", "--sub-windows", "2", "--finalize-tokens", "40",
        )
        if {v["verdict"] for v in r["summary"]["finalize_ttft"].values()} <= {"ok"} or not again:
            break
        if "degraded" not in said or "evicted" in said:  # not its clock
            break
        print("    agent-sim erred by its clock, once more", flush=True)
        empty_cache()
    assert "FINALIZE survival: 2/2 OK" in said and status == 0, f"status {status}: " + "; ".join(
        line.strip() for line in said.splitlines() if "ABORTED:" in line or "FINALIZE" in line)
    assert "main continuation turns reused: 4/4" in said, "a main turn was not reused"
    assert "engine prefix-cache delta" in said, "the tool did not find the engine's counters"
    assert [x["cached_source"] for x in r["records"]] == ["usage"] * 12, "cached tokens are not in usage"
    assert not [x for x in r["records"] if x["error"]], "a request failed"
    cached = sum(x["cached"] for x in r["records"])
    hits = since(before, "vllm:prefix_cache_hits_total")
    assert hits == cached > 0, f"usage says {cached} tokens were cached, the counters {hits:.0f}"
    return f"2/2 sessions survive, {cached} tokens cached, as many as the counters say"


def abort_sim(label, *flags):
    before = checks.counters(args.url)
    aborted = "vllm:request_success_total{finished_reason=abort}"
    status, said, r = use(
        label, [BIN / "abort-sim"], "--context-tokens", "800", "--thinking-tokens", "40", "--max-tokens", "400", "--runs", "2", *flags)
    assert [x["tokens"] for x in r["records"]] == [40, 40], "the streams were not cut after 40 tokens"
    assert "runs passed: 2/2" in said and status == 0, f"status {status}: " + "; ".join(
        line.strip() for line in said.splitlines() if "] run" in line)
    end = time.monotonic() + 5
    while since(before, aborted) < 2 and time.monotonic() < end:
        time.sleep(0.05)
    assert since(before, aborted) == 2, f"the engine counted {since(before, aborted):.0f} aborted requests, want 2"
    now = checks.counters(args.url)
    assert now["vllm:num_requests_running"] == 0 and now["vllm:kv_cache_usage_perc"] == 0, "an aborted request holds its blocks"
    return "2/2 aborted mid-stream, reuse " + ", ".join(f"{x['reuse']:.1%}" for x in r["records"])


def abort_sim_continued():
    return abort_sim("abort-sim-continued", "--reprompt-mode", "continuation")


def abort_sim_redirected():
    # The new instruction is 270 tokens of at most 4,096: 95 % is out of reach.
    return abort_sim("abort-sim-redirected", "--min-reuse", "0.85")


reusing = [cache_pressure, agent_sim, abort_sim_continued, abort_sim_redirected]
checks.run(reusing if args.must_fail else [needle_test, needle_test_in_its_grammar] + reusing, args.must_fail, show)
