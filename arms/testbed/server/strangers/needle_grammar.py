"""cache-pressure's needle-test in the only language the embedded model reads.

The model recalls a number that is set down as "fact: key K07 is 4821 ." and
asked for as "question: key K07 ?"; a secret code in square brackets means
nothing to it. So this replaces the tool's needle and question, and asks
greedily, since the tool leaves the temperature to the server. Haystacks,
sizes, calibration, streaming, verdict and exit status stay the tool's own.
"""

import types

import requests
from cache_pressure import needle


def make_needle(rng):
    key, code = f"K{rng.randrange(64):02d}", str(rng.randrange(1000, 9999))
    needle.QUESTION = f"question: key {key} ?"
    return f"fact: key {key} is {code} .", code


def post(url, json, **more):
    return requests.post(url, json={**json, "temperature": 0}, **more)


needle.make_needle = make_needle
needle.requests = types.SimpleNamespace(post=post)

if __name__ == "__main__":
    needle.main()
