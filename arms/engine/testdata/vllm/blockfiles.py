"""blockfiles keeps the KV cache of vLLM on disk, one file a block, and damages it on request.

It is a connector of the v1 interface (vllm/distributed/kv_transfer/kv_connector/v1/base.py)
that lives outside of vLLM's tree, so that a ladder has a store whose faults are known:

    --kv-transfer-config '{"kv_connector": "BlockFiles", "kv_connector_module_path": "blockfiles",
        "kv_role": "kv_both", "kv_connector_extra_config": {"path": "...", "fault": ""}}'

A file is named by a digest over everything that its content depends on: model, dtypes and
block size, the salt, and all tokens up to the block's end. It holds the block's bytes of
every layer, layer after layer in the order of their names, and nothing else. A process that
is started over the same folder finds them again.

Loads and saves are done inside the step that needs them: slow, and without races. The cache
tensor of a layer must have blocks as its first dimension, as the CPU backend lays it out.

The extra configuration names one fault at most:

    shift     a block gets the content of the block before it
    zerolast  the last block of a load is zeros
    scale     everything loaded is multiplied by 1.02
    half      everything stored went through float16, as lossy codecs do
    lowbit    the lowest bit of every number is flipped, in one layer of the last block of a load
    nosalt    the name of a file does not depend on the salt
    lose      the last block of a load fails, and is reported as failed
"""

import array
import hashlib
import os
import pathlib
import uuid

import torch
from vllm.distributed.kv_transfer.kv_connector.v1 import base
from vllm.logger import init_logger

try:
    from vllm.v1.metrics.cache_hit_source import CacheHitSource
except ImportError:  # older than the counter by source
    CacheHitSource = None

logger = init_logger("vllm.blockfiles")

FAULTS = ("", "shift", "zerolast", "scale", "half", "lowbit", "nosalt", "lose")


class Orders(base.KVConnectorMetadata):
    """What the scheduler tells the workers to do in one step."""

    def __init__(self):
        self.loads = []  # (request, [(file, block)])
        self.saves = []  # (file, block)


class Follow:
    """One request as the scheduler knows it."""

    def __init__(self, request):
        self.request = request
        self.table = []  # block ids by position
        self.names = []  # of its full blocks, as far as they were asked for
        self.promised = 0  # blocks that the next step must load


class BlockFiles(base.KVConnectorBase_V1, base.SupportsHMA):
    if CacheHitSource is not None:
        _cache_hit_source = CacheHitSource.DISK

    def __init__(self, vllm_config, role, kv_cache_config=None):
        super().__init__(vllm_config=vllm_config, role=role, kv_cache_config=kv_cache_config)
        if kv_cache_config is not None and len(kv_cache_config.kv_cache_groups) != 1:
            raise ValueError("blockfiles knows models with one group of caches only")
        extra = self._kv_transfer_config.get_from_extra_config
        self.folder = pathlib.Path(extra("path", "blockfiles"))
        self.fault = extra("fault", "")
        if self.fault not in FAULTS:
            raise ValueError(f"blockfiles: fault {self.fault!r} is not one of {FAULTS}")
        self.folder.mkdir(parents=True, exist_ok=True)
        model, cache = vllm_config.model_config, vllm_config.cache_config
        self.block = cache.block_size
        self.root = hashlib.sha256(repr((model.model, str(model.dtype), cache.cache_dtype, self.block)).encode())
        self.follows = {}
        self.layers = []  # (name, tensor), by name
        self.failed = set()
        logger.info("blockfiles %s: block %d fault %r folder %s", role.name, self.block, self.fault, self.folder)

    # names of blocks

    def names(self, follow, count):
        """The files of the first count blocks."""
        request = follow.request
        if not follow.names:
            salt = None if self.fault == "nosalt" else getattr(request, "cache_salt", None)
            start = self.root.copy()
            start.update(repr(salt).encode())
            follow.chain = start
        while len(follow.names) < count:
            at = len(follow.names) * self.block
            follow.chain.update(array.array("q", request.all_token_ids[at : at + self.block]).tobytes())
            follow.names.append(follow.chain.hexdigest()[:32])
        return follow.names[:count]

    def file(self, name):
        return self.folder / name[:2] / (name + ".kv")

    # the scheduler's half

    def follow(self, request):
        if request.request_id not in self.follows:
            self.follows[request.request_id] = Follow(request)
        return self.follows[request.request_id]

    def get_num_new_matched_tokens(self, request, num_computed_tokens):
        follow = self.follow(request)
        usable = (request.num_tokens - 1) // self.block  # one token at least is left to compute
        have = known = num_computed_tokens // self.block
        for name in self.names(follow, usable)[have:]:
            if not self.file(name).exists():
                break
            known += 1
        return (known - have) * self.block, False

    def update_state_after_alloc(self, request, blocks, num_external_tokens):
        self.follow(request).promised = num_external_tokens // self.block

    def build_connector_meta(self, scheduler_output):
        orders, out = Orders(), scheduler_output
        steps = []  # (request id, tokens computed before this step)
        for new in out.scheduled_new_reqs:
            if follow := self.follows.get(new.req_id):
                follow.table = list(new.block_ids[0])
                steps.append((new.req_id, new.num_computed_tokens))
        old = out.scheduled_cached_reqs
        for i, request_id in enumerate(old.req_ids):
            if follow := self.follows.get(request_id):
                more = list(old.new_block_ids[i][0]) if old.new_block_ids[i] else []
                follow.table = more if request_id in old.resumed_req_ids else follow.table + more
                steps.append((request_id, old.num_computed_tokens[i]))
        for request_id, before in steps:
            follow = self.follows[request_id]
            begin = before // self.block  # what was promised counts as computed already
            if follow.promised:
                positions = range(begin - follow.promised, begin)
                names = self.names(follow, begin)
                orders.loads.append((request_id, [(names[p], follow.table[p]) for p in positions]))
                follow.promised = 0
            end = min(before + out.num_scheduled_tokens[request_id], follow.request.num_prompt_tokens) // self.block
            for p, name in list(enumerate(self.names(follow, end)))[begin:]:
                orders.saves.append((name, follow.table[p]))
        return orders

    def request_finished(self, request, block_ids):
        self.follows.pop(request.request_id, None)
        return False, None

    def request_finished_all_groups(self, request, block_ids):
        return self.request_finished(request, block_ids[0] if block_ids else [])

    def reset_cache(self):
        for file in self.folder.glob("*/*.kv"):
            file.unlink(missing_ok=True)
        return True

    # the workers' half

    def register_kv_caches(self, kv_caches):
        self.layers = sorted(kv_caches.items())
        name, tensor = self.layers[0]
        logger.info("blockfiles has %d layers of %s %s", len(self.layers), tuple(tensor.shape), tensor.dtype)

    def start_load_kv(self, forward_context, **kwargs):
        for request_id, blocks in self._get_connector_metadata().loads:
            for i, (name, block) in enumerate(blocks):
                source = blocks[i - 1][0] if self.fault == "shift" and i > 0 else name
                last = i == len(blocks) - 1
                try:
                    if self.fault == "lose" and last:
                        raise OSError("lost on purpose")
                    self.load(self.file(source), block, last)
                except (OSError, ValueError) as error:
                    logger.error("blockfiles: block %d of request %s: %s", block, request_id, error)
                    self.failed.add(block)
            logger.info("blockfiles loaded %d blocks for request %s", len(blocks), request_id)

    def load(self, file, block, last):
        stored, at = torch.frombuffer(bytearray(file.read_bytes()), dtype=torch.uint8), 0
        for number, (_, cache) in enumerate(self.layers):
            place = cache[block]
            size = place.numel() * place.element_size()
            if at + size > stored.numel():
                raise ValueError(f"{file.name} has {stored.numel()} bytes, {at + size} are needed")
            content = stored[at : at + size].clone()
            at += size
            if self.fault == "zerolast" and last:
                content.zero_()
            if self.fault == "lowbit" and last and number == len(self.layers) // 2:
                content[:: place.element_size()] ^= 1  # little-endian: the first byte is the lowest
            place.copy_(content.view(place.dtype).reshape(place.shape))
            if self.fault == "scale":
                place.mul_(1.02)
            if self.fault == "half":
                place.copy_(place.to(torch.float16))

    def wait_for_layer_load(self, layer_name):
        pass

    def save_kv_layer(self, layer_name, kv_layer, attn_metadata, **kwargs):
        pass

    def wait_for_save(self):
        for name, block in self._get_connector_metadata().saves:
            file = self.file(name)
            if file.exists():
                continue
            file.parent.mkdir(exist_ok=True)
            part = file.parent / f"{uuid.uuid4().hex}.part"
            with open(part, "wb") as f:
                for _, cache in self.layers:
                    f.write(cache[block].detach().contiguous().view(torch.uint8).numpy().tobytes())
            os.replace(part, file)

    def get_block_ids_with_load_errors(self):
        failed, self.failed = self.failed, set()
        return failed
