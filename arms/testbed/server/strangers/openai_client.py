"""The official OpenAI Python client against a running engine.

    openai_client.py URL [--must-fail]

With --must-fail the engine has its prefix cache off, and the check that looks
for reuse has to see that.
"""

import argparse
import asyncio
import random

import openai

import checks

args = argparse.ArgumentParser()
args.add_argument("url")
args.add_argument("--must-fail", action="store_true")
args = args.parse_args()

client = openai.OpenAI(base_url=args.url + "/v1", api_key="none", max_retries=0, timeout=60)
MODEL = "kvladder-testbed"
FILLER = "river stone bridge forest hill valley road field garden house window door table lamp".split()


def page(seed, sentences=40):
    """A prompt in the model's grammar, and its answer. The seed makes it new."""
    rng = random.Random(seed)

    def sentence():
        return "the " + " ".join(rng.choice(FILLER) for _ in range(8)) + " ."

    key, answer = f"K{rng.randrange(64):02d}", str(rng.randrange(1000, 10000))
    lines = [sentence() for _ in range(sentences)]
    lines.insert(sentences // 4, f"fact: key {key} is {answer} .")
    return "\n".join(lines + [f"question: key {key} ?"]), answer


def greedy(prompt, **more):
    return client.completions.create(model=MODEL, prompt=prompt, max_tokens=8, temperature=0, **more)


def equal(got, want, what):
    assert got == want, f"{what}: got {got!r}, want {want!r}"


def models():
    found = client.models.list().data
    equal([m.id for m in found], [MODEL], "models")
    equal(client.models.list().data[0].object, "model", "object")
    return found[0].id


def completion():
    prompt, answer = page("completion")
    reply = greedy(prompt)
    choice, usage = reply.choices[0], reply.usage
    equal(reply.object, "text_completion", "object")
    equal(choice.text.strip(), answer, "answer")
    equal(choice.finish_reason, "stop", "finish reason")
    equal(usage.total_tokens, usage.prompt_tokens + usage.completion_tokens, "total tokens")
    equal(usage.completion_tokens, 5, "completion tokens (four digits and the end)")
    return f"{choice.text!r} to {usage.prompt_tokens} prompt tokens"


def logprobs():
    prompt, answer = page("logprobs")
    choice = greedy(prompt, logprobs=3).choices[0]
    lp = choice.logprobs
    equal("".join(lp.tokens[:-1]), choice.text, "tokens joined")
    equal(choice.text.strip(), answer, "answer")
    equal({len(lp.tokens), len(lp.token_logprobs), len(lp.top_logprobs), len(lp.text_offset)}, {5}, "lengths")
    for token, logprob, top in zip(lp.tokens, lp.token_logprobs, lp.top_logprobs):
        assert logprob <= 0, f"logprob {logprob} of {token!r} is above 0"
        equal(len(top), 3, f"alternatives of {token!r}")
        equal((top[token], max(top.values())), (logprob, logprob), f"greedy choice {token!r} and the best")
    return f"{lp.token_logprobs[0]!r} for {lp.tokens[0]!r}"


def completion_stream():
    prompt, answer = page("stream")
    whole = greedy(prompt)
    chunks = list(greedy(prompt, stream=True, stream_options={"include_usage": True}))
    text = "".join(c.choices[0].text for c in chunks if c.choices)
    equal(text, whole.choices[0].text, "streamed text")
    equal(text.strip(), answer, "answer")
    equal([c.choices[0].finish_reason for c in chunks if c.choices][-1], "stop", "finish reason")
    equal([c.usage is not None for c in chunks], [False] * (len(chunks) - 1) + [True], "chunks with usage")
    equal(chunks[-1].choices, [], "choices of the usage chunk")
    equal(chunks[-1].usage.completion_tokens, whole.usage.completion_tokens, "completion tokens")
    equal(len({c.id for c in chunks}), 1, "reply ids")
    assert len(chunks) >= 5, f"only {len(chunks)} chunks: not streamed"
    return f"{len(chunks)} chunks"


def talk(prompt, **more):
    system, _, rest = prompt.partition("\n")
    messages = [{"role": "system", "content": system}, {"role": "user", "content": [{"type": "text", "text": rest}]}]
    return client.chat.completions.create(model=MODEL, messages=messages, max_completion_tokens=8, temperature=0, **more)


def chat():
    prompt, answer = page("chat")
    reply = talk(prompt, logprobs=True, top_logprobs=2)
    choice = reply.choices[0]
    equal(reply.object, "chat.completion", "object")
    equal((choice.message.role, choice.message.content.strip()), ("assistant", answer), "message")
    equal(choice.finish_reason, "stop", "finish reason")
    equal(len(choice.logprobs.content), reply.usage.completion_tokens, "positions with logprobs")
    for at in choice.logprobs.content:
        equal(len(at.top_logprobs), 2, f"alternatives of {at.token!r}")
        equal((at.top_logprobs[0].token, at.top_logprobs[0].logprob), (at.token, at.logprob), "best alternative")
    equal(reply.usage.prompt_tokens, greedy(prompt).usage.prompt_tokens, "tokens of the same text as a completion")
    return repr(choice.message.content)


def chat_stream():
    prompt, answer = page("chat stream")
    chunks = list(talk(prompt, stream=True, stream_options={"include_usage": True}))
    equal(chunks[0].choices[0].delta.role, "assistant", "first delta's role")
    equal("".join(c.choices[0].delta.content or "" for c in chunks if c.choices).strip(), answer, "answer")
    equal([c.choices[0].finish_reason for c in chunks if c.choices][-1], "stop", "finish reason")
    equal(chunks[-1].choices, [], "choices of the usage chunk")
    equal(chunks[-1].usage.completion_tokens, 5, "completion tokens")
    return f"{len(chunks)} chunks"


def at_once():
    """Eight requests in flight answer as each did alone, bit for bit."""
    pages = [page(f"at once {i}") for i in range(8)]

    async def all_of_them():
        async with openai.AsyncOpenAI(base_url=args.url + "/v1", api_key="none", max_retries=0, timeout=60) as c:
            return await asyncio.gather(*(
                c.completions.create(model=MODEL, prompt=p, max_tokens=8, temperature=0, logprobs=1) for p, _ in pages))

    for (prompt, answer), together in zip(pages, asyncio.run(all_of_them())):
        equal(together.choices[0].text.strip(), answer, "answer")
        equal(together.choices[0].logprobs.token_logprobs, greedy(prompt, logprobs=1).choices[0].logprobs.token_logprobs, "logprobs")
    return f"{len(pages)} answers"


def reuse():
    """A needle is found twice; the second time most of its page comes from the cache."""
    prompt, answer = page(random.SystemRandom().random())
    first, second = greedy(prompt, logprobs=5), greedy(prompt, logprobs=5)
    equal([r.choices[0].text.strip() for r in (first, second)], [answer, answer], "answers")
    equal(second.choices[0].logprobs, first.choices[0].logprobs, "logprobs")
    cached = [r.usage.prompt_tokens_details.cached_tokens for r in (first, second)]
    equal(cached[0], 0, "cached tokens of a new page")
    least = first.usage.prompt_tokens - 2 * 64
    assert cached[1] >= least, f"cached tokens the second time: {cached[1]} of {first.usage.prompt_tokens}, want {least} or more"
    return f"{cached[1]} of {first.usage.prompt_tokens} prompt tokens cached"


def refused(error, status, do, word):
    try:
        do()
    except error as err:
        equal(err.status_code, status, "status")
        equal(err.body["code"], status, "code in the body")
        assert err.body["type"] and word in err.body["message"], f"error body {err.body}, want {word!r} in its message"
        return
    raise AssertionError(f"{word}: accepted, want {error.__name__}")


def bad_requests():
    bad = openai.BadRequestError
    refused(bad, 400, lambda: greedy("the river", logprobs=21), "logprobs")
    refused(bad, 400, lambda: greedy("the river", n=2), "n is not supported")
    refused(bad, 400, lambda: client.completions.create(model=MODEL, prompt="the", max_tokens=0), "max_tokens")
    refused(bad, 400, lambda: greedy("the river " * 5000), "maximum context length is 4096")
    refused(bad, 400, lambda: client.chat.completions.create(model=MODEL, messages=[]), "messages")
    refused(bad, 400, lambda: client.chat.completions.create(model=MODEL, messages=[{"role": "user", "content": "x"}], top_logprobs=2), "top_logprobs")
    refused(openai.NotFoundError, 404, lambda: client.completions.create(model="another", prompt="the"), "does not exist")
    return "7 refused, each with its reason"


checks.run([reuse] if args.must_fail else [
    models, completion, logprobs, completion_stream, chat, chat_stream, at_once, reuse, bad_requests,
], args.must_fail)
