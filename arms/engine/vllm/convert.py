"""convert.py FILE.gguf FOLDER writes a model that vLLM loads from one that llama.cpp loads.

Only llama-shaped models with the smollm tokenizer are known. Weights are dequantised and
kept in bfloat16. Nothing but gguf and numpy is needed: the safetensors and tokenizer.json
files are simple enough to be written here (https://github.com/huggingface/safetensors,
"Format"; https://github.com/huggingface/tokenizers, the serialised Tokenizer).
"""

import json
import pathlib
import sys

import gguf
import numpy

HEAD = {"token_embd.weight": "model.embed_tokens.weight", "output_norm.weight": "model.norm.weight", "output.weight": "lm_head.weight"}
LAYER = {
    "attn_norm": "input_layernorm",
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj",
    "ffn_norm": "post_attention_layernorm",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
}


def bfloat16(a):
    """The upper half of each float32, rounded to even."""
    bits = numpy.ascontiguousarray(a, dtype=numpy.float32).view(numpy.uint32)
    return ((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16).astype("<u2")


def halves(a, heads):
    """llama.cpp rotates neighbouring pairs, transformers the two halves of a head: rows
    that llama.cpp keeps as (pair, half) go back to (half, pair)."""
    rows, columns = a.shape
    return a.reshape(heads, rows // heads // 2, 2, columns).transpose(0, 2, 1, 3).reshape(rows, columns)


def main(source, folder):
    reader = gguf.GGUFReader(source)

    def value(key):
        return reader.fields[key].contents() if key in reader.fields else None

    if value("general.architecture") != "llama" or value("tokenizer.ggml.pre") != "smollm":
        sys.exit("error: convert: only llama-shaped models with the smollm tokenizer are known")
    heads, kv_heads = value("llama.attention.head_count"), value("llama.attention.head_count_kv")
    out = pathlib.Path(folder)
    out.mkdir(parents=True)

    tensors = {}
    for t in reader.tensors:
        data = gguf.dequantize(t.data, t.tensor_type).reshape([int(n) for n in reversed(t.shape)])
        if t.name in HEAD:
            name = HEAD[t.name]
        else:
            _, layer, part, kind = t.name.split(".")
            name = f"model.layers.{layer}.{LAYER[part]}.{kind}"
            if part in ("attn_q", "attn_k"):
                data = halves(data, heads if part == "attn_q" else kv_heads)
        tensors[name] = bfloat16(data)
    header, offset = {"__metadata__": {"format": "pt"}}, 0
    for name in sorted(tensors):
        size = tensors[name].nbytes
        header[name] = {"dtype": "BF16", "shape": list(tensors[name].shape), "data_offsets": [offset, offset + size]}
        offset += size
    head = json.dumps(header).encode()
    head += b" " * (-len(head) % 8)
    with open(out / "model.safetensors", "wb") as f:
        f.write(len(head).to_bytes(8, "little") + head)
        for name in sorted(tensors):
            tensors[name].tofile(f)

    def write(name, document):
        (out / name).write_text(json.dumps(document, ensure_ascii=False, indent=1) + "\n")

    tokens, types = value("tokenizer.ggml.tokens"), value("tokenizer.ggml.token_type")
    bos, eos = value("tokenizer.ggml.bos_token_id"), value("tokenizer.ggml.eos_token_id")
    width = value("llama.embedding_length")
    write("config.json", {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "hidden_size": width,
        "intermediate_size": value("llama.feed_forward_length"),
        "num_hidden_layers": value("llama.block_count"),
        "num_attention_heads": heads,
        "num_key_value_heads": kv_heads,
        "head_dim": width // heads,
        "vocab_size": len(tokens),
        "max_position_embeddings": value("llama.context_length"),
        "rope_theta": value("llama.rope.freq_base"),
        "rms_norm_eps": value("llama.attention.layer_norm_rms_epsilon"),
        "hidden_act": "silu",
        "attention_bias": False,
        "mlp_bias": False,
        "tie_word_embeddings": "lm_head.weight" not in tensors,
        "bos_token_id": bos,
        "eos_token_id": eos,
        "torch_dtype": "bfloat16",
    })
    write("generation_config.json", {"bos_token_id": bos, "eos_token_id": eos})
    control = 3  # the token type of llama.cpp's LLAMA_TOKEN_TYPE_CONTROL
    write("tokenizer.json", {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": [
            {"id": i, "content": t, "single_word": False, "lstrip": False, "rstrip": False, "normalized": False, "special": True}
            for i, (t, kind) in enumerate(zip(tokens, types))
            if kind == control
        ],
        "normalizer": None,
        "pre_tokenizer": {
            "type": "Sequence",
            "pretokenizers": [
                {"type": "Digits", "individual_digits": True},
                {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True},
            ],
        },
        "post_processor": None,
        "decoder": {"type": "ByteLevel", "add_prefix_space": True, "trim_offsets": True, "use_regex": True},
        "model": {
            "type": "BPE",
            "dropout": None,
            "unk_token": None,
            "continuing_subword_prefix": None,
            "end_of_word_suffix": None,
            "fuse_unk": False,
            "byte_fallback": False,
            "vocab": {t: i for i, t in enumerate(tokens)},
            "merges": [m.split(" ") for m in value("tokenizer.ggml.merges")],
        },
    })
    write("tokenizer_config.json", {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "bos_token": tokens[bos],
        "eos_token": tokens[eos],
        "pad_token": tokens[eos],
        "model_max_length": value("llama.context_length"),
        "clean_up_tokenization_spaces": False,
        "chat_template": value("tokenizer.chat_template"),
    })
    print(f"convert: {len(tensors)} tensors, {sum(t.size for t in tensors.values())} weights", file=sys.stderr)


main(*sys.argv[1:])
