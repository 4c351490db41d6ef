package engine

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"kvladder/arms"
	"kvladder/probes"
	"kvladder/prompts"
	"kvladder/scoring"
)

// LlamaCpp is llama-server of llama.cpp, by default the one that llamacpp/fetch.sh puts
// into the project's cache. It has no store that requests write to. What outlives the
// process is a file for each slot, written and read when asked (POST /slots/N?action=save
// and restore): RST is the arm about them.
//
// What was measured on build 11669, CPU, two threads, SmolLM2-135M in 4 bits, five prompts
// of 300 to 449 tokens (321, 385 and 449 being 1 modulo 64), eight tokens generated with
// top-5 logprobs; "equal" is bitwise:
//
//   - Cold, cold again, a full hit (all tokens but one reused) and a hit of 200 of 321
//     tokens are equal with flash_attn off, with f16, and for q8_0 and bf16 with it on.
//   - f16 with flash_attn on is not: a full hit differs from cold by up to 1.1 in a
//     logprob and in tokens. With ubatch 64 it is equal for the lengths that are 1 modulo
//     64, where both compute the last token alone, and differs by 0.1 for the others.
//   - batch and ubatch 64 against 512, cold: equal with flash_attn off, and for q8_0 and
//     bf16 with it on; up to 1.1 apart for f16 with it on. So ubatch splits C0 in the
//     configurations that are pinned here.
//   - A slot file restored in a new process gives replies equal to the warm ones and the
//     cold ones, for f16 and q8_0. Saving twice gives the same bytes.
//   - q8_0 against f16, both cold, differs by 0.06 to 0.7 in a logprob, sometimes in
//     tokens.
//   - Prompts of 65 to 209 tokens, all 1 modulo 16: f16 and bf16 with flash_attn off, q8_0 and
//     q4_0 with it on are equal cold, warm, and cold with ubatch 16.
//   - Slot files have no checksum of what they hold: flipped bytes are accepted. They
//     do damage only where they hit tokens that the prompt reuses. The middle of the file
//     is where K ends and V begins, so it holds the last tokens, those generated, and
//     flipping there changed nothing for f16. In the middle of a layer's K it shows; in the
//     few bytes of header before each layer it is status 400 on restoring.
//   - A slot file of a model of another shape, of another KV dtype or with flash_attn the
//     other way is status 400. One of another model with the same shape is taken, and what is
//     answered comes from the other model's keys and values.
//   - A value of K that is no number gives logprob null and status 200.
//   - With --cache-ram a slot's prompt is copied out before most of it is overwritten, and the
//     copy that fits best is taken back; the log says so and nothing else does. Erasing a slot
//     leaves the copies. Equal to cold.
//   - --cache-reuse moves chunks that the slot holds further on to where the prompt has them:
//     0.26 apart from cold for a chunk of 200 tokens in a synthetic model of four layers. With
//     K in q8_0 the server ends without a word when it does so.
//   - Models with recurrent layers resume from checkpoints, made four tokens before the end of
//     a prompt, cache_prompt or not; slot files hold them. A prefix that is cut before the
//     last checkpoint is computed anew. Equal to cold.
//   - A prompt that names no slot goes to the one that holds the largest share of it, beyond
//     --slot-prompt-similarity, else to the one that waited longest. id_slot beyond the slots
//     is taken modulo their number, and a string is not read; the reply names the slot.
//   - The context of a slot is raised to a multiple of 256 tokens, with a warning that says
//     "rounding down".
//   - Restoring a file that does not exist is status 400, "Unable to restore slot".
//   - SIGTERM and SIGINT both end it with status 0.
//   - Quantized V needs flash_attn on: it refuses to start otherwise.
type LlamaCpp struct{}

// llamaSlotFile is what the file of slot i is called, inside Resources.Slots.
func llamaSlotFile(i int) string { return fmt.Sprintf("slot-%d.bin", i) }

// llamaPad is what the context of a slot is a multiple of (src/llama-context.cpp).
const llamaPad = 256

var llamaTypes = []string{"f32", "f16", "bf16", "q8_0", "q4_0", "q4_1", "iq4_nl", "q5_0", "q5_1"}

var llamaPins = map[string]pin{
	"binary":         {"llamacpp/root", some},                                  // folder with an unpacked system, or a file called llama-server; relative to the cache
	"model":          {"llamacpp/model/SmolLM2-135M-Instruct.Q4_1.gguf", some}, // relative to the cache
	"ggml_backend":   {"haswell", some},                                        // variant of libggml-cpu-*.so: another one gives other last digits
	"kv_cache_dtype": {"f16", oneOf(llamaTypes...)},                            // of K and V
	"flash_attn":     {off, oneOf(on, off)},                                    //
	"threads":        {"2", atLeast(1)},                                        //
	"batch":          {"512", atLeast(1)},                                      //
	"ubatch":         {"512", atLeast(1)},                                      // the prefill budget
	"slots":          {"8", atLeast(1)},                                        //
	"ctx":            {"8192", atLeast(1)},                                     // of all slots together
	"cache_prompt":   {on, oneOf(on, off)},                                     //
	"cache_ram":      {"0", atLeast(0)},                                        // MiB of a host cache of prompts, which erasing a slot does not empty
	"kv_unified":     {off, oneOf(on, off)},                                    //
	"seed":           {"1", unsigned},                                          //
	"slot_restore":   {off, oneOf(on, off)},                                    // whether the harness saves and restores slots; the server does not know

	"slot_similarity":  {"0.1", shareOfOne},                   // of a prompt that names no slot, what a slot must hold to get it; 0 = the slot that waited longest
	"cache_reuse":      {"0", atLeast(0)},                     // fewest tokens of a chunk that is moved to another position; 0 = none is
	"cache_idle_slots": {off, oneOf(on, off)},                 // idle slots are copied to the host's cache when another prompt comes
	"ctx_checkpoints":  {"32", atLeast(0)},                    // places of a prompt where the state of recurrent layers is kept
	"checkpoint_step":  {"8192", atLeast(0)},                  // tokens between two of them inside of a prompt
	"memory":           {attention, oneOf(attention, hybrid)}, // of the model: keys and values alone, or recurrent states beside them; the server does not take it, its log says it
}

// What a model keeps of a prompt.
const (
	attention = "attention"
	hybrid    = "hybrid"
)

func (LlamaCpp) Name() string { return "llamacpp" }

func (LlamaCpp) Pins() map[string]string { return defaults(llamaPins) }

// Configure: C0 and C1 differ in cache_prompt alone, C1 and store in slot_restore alone.
func (LlamaCpp) Configure(role string) (map[string]string, error) {
	switch role {
	case "C0":
		return map[string]string{"cache_prompt": off, "slot_restore": off}, nil
	case "C1":
		return map[string]string{"cache_prompt": on, "slot_restore": off}, nil
	case "store":
		return map[string]string{"cache_prompt": on, "slot_restore": on}, nil
	}
	return nil, fmt.Errorf("engine llamacpp has no configuration %q", role)
}

// SplitPin makes prefill go in pieces of 16 tokens.
func (LlamaCpp) SplitPin(prompts.Geometry) (name, value string) { return "ubatch", "16" }

// Spec needs Resources.Cache where paths are relative, and Resources.Slots where slots are
// to be saved. Every size is stated and --fit is off, or the server would choose some
// itself; the log level is the one at which it prints what it runs with.
func (LlamaCpp) Spec(pins map[string]string, at arms.Address, res arms.Resources) (arms.Spec, error) {
	p, err := resolve("llamacpp", llamaPins, pins)
	if err != nil {
		return arms.Spec{}, err
	}
	if quantized := !slices.Contains([]string{"f32", "f16", "bf16"}, p["kv_cache_dtype"]); quantized && p["flash_attn"] == off {
		return arms.Spec{}, fmt.Errorf("engine llamacpp: kv_cache_dtype %s needs flash_attn on: the server refuses a quantized V cache without it", p["kv_cache_dtype"])
	}
	batch, _ := strconv.Atoi(p["batch"])
	if ubatch, _ := strconv.Atoi(p["ubatch"]); ubatch > batch {
		return arms.Spec{}, fmt.Errorf("engine llamacpp: ubatch %d is larger than batch %d: the server would lower it in silence", ubatch, batch)
	}
	ctx, _ := strconv.Atoi(p["ctx"])
	parts, _ := strconv.Atoi(p["slots"])
	if p["kv_unified"] == on {
		parts = 1
	}
	if ctx%(parts*llamaPad) != 0 {
		return arms.Spec{}, fmt.Errorf("engine llamacpp: ctx %d is not a multiple of %d (%d tokens for each of %d slots): the server would raise it in silence; use ctx %d",
			ctx, parts*llamaPad, llamaPad, parts, (ctx/(parts*llamaPad)+1)*parts*llamaPad)
	}
	if p["slot_restore"] == on && res.Slots == "" {
		return arms.Spec{}, errors.New("engine llamacpp: slot_restore needs a folder for slot files")
	}
	inCache := func(path string) string {
		if filepath.IsAbs(path) || res.Cache == "" {
			return path
		}
		return filepath.Join(res.Cache, path)
	}
	binary, model := inCache(p["binary"]), inCache(p["model"])
	spec := arms.Spec{Env: map[string]string{}, Fetch: "arms/engine/llamacpp/fetch.sh"}
	if filepath.Base(binary) == "llama-server" {
		spec.Argv = []string{binary}
		spec.Files = []string{binary}
	} else {
		// An unpacked system: its programs run under its own C library.
		lib := filepath.Join(binary, "usr/lib/x86_64-linux-gnu")
		loader, server := filepath.Join(lib, "ld-linux-x86-64.so.2"), filepath.Join(binary, "usr/bin/llama-server")
		backend := filepath.Join(lib, "ggml/backends0", "libggml-cpu-"+p["ggml_backend"]+".so")
		spec.Env["GGML_BACKEND_PATH"] = backend
		spec.Argv = []string{loader, "--library-path", lib + ":" + filepath.Join(lib, "llama"), server}
		spec.Files = []string{loader, server, backend}
	}
	spec.Files = append(spec.Files, model)
	spec.Argv = append(spec.Argv,
		"--host", at.Host, "--port", strconv.Itoa(at.Port),
		"-m", model, "-a", filepath.Base(model), "--offline", "--no-warmup", "--metrics", "-lv", "4", "-fit", "off",
		"-c", p["ctx"], "-np", p["slots"], "-b", p["batch"], "-ub", p["ubatch"], "-t", p["threads"], "-tb", p["threads"],
		"-fa", p["flash_attn"], "-ctk", p["kv_cache_dtype"], "-ctv", p["kv_cache_dtype"],
		"--cache-ram", p["cache_ram"], "--cache-reuse", p["cache_reuse"], "-sps", p["slot_similarity"],
		"--ctx-checkpoints", p["ctx_checkpoints"], "--checkpoint-min-step", p["checkpoint_step"], "-s", p["seed"],
		pick(p["cache_idle_slots"], "--cache-idle-slots", "--no-cache-idle-slots"),
		pick(p["cache_prompt"], "--cache-prompt", "--no-cache-prompt"), pick(p["kv_unified"], "-kvu", "-no-kvu"))
	if res.Slots != "" {
		spec.Argv = append(spec.Argv, "--slot-save-path", res.Slots)
	}
	return spec, nil
}

func pick(v, yes, no string) string {
	if v == on {
		return yes
	}
	return no
}

// Ready asks /health once: 503 while the model loads, then 200.
func (LlamaCpp) Ready(ctx context.Context, e probes.Endpoint) error {
	_, err := ask(ctx, e, "/health", nil)
	return err
}

// Counters know what was computed and what was not, and nothing of where the rest came
// from (tools/server/server-context.cpp, prompt_tokens_total leaves cached tokens out).
func (LlamaCpp) Counters() map[string]string {
	return map[string]string{
		probes.Computed:     "llamacpp:prompt_tokens",
		probes.CachedTokens: "llamacpp:prompt_tokens_cached",
	}
}

// CachedIs: timings.cache_n is the slot's own content in C1, and what the slot file
// brought in RST.
func (LlamaCpp) CachedIs(preset string) string {
	switch preset {
	case "C0", "C0-split", "C1":
		return "local"
	case "RST", "XID":
		return "external"
	}
	return ""
}

func (LlamaCpp) Cannot(preset string) string {
	switch preset {
	case "C0", "C0-split", "C1", "C1-XID", "RST", "WARM", "XID":
		return ""
	case "COLD":
		return "llama-server has no external store that a request could fill: slot files are written only when asked"
	case "REPLAY":
		return "without an external store a replay in the same process is C1 once more"
	case "PART", "C1-PART", "C0-PART":
		return "a slot holds one prompt, and nothing beneath it could supply the rest of another"
	}
	return "engine llamacpp does not know the preset " + preset
}

// CannotWith: what erased slots held comes back from the host's cache, or not at all.
func (LlamaCpp) CannotWith(preset string, pins map[string]string) string {
	switch {
	case preset == "WARM" && pins["cache_ram"] == "0":
		return "without a cache beside the slots nothing is left to hit once they are erased: pins: {slot_restore: off, cache_ram: 64} is the host's"
	case preset == "WARM" && pins["slot_restore"] == on:
		return "erased slots come back from the host's cache and from no file: pins: {slot_restore: off, cache_ram: 64}"
	}
	return ""
}

// Inexact: a chunk that --cache-reuse moves keeps keys and values that were computed behind
// another text; only their positions are turned to the new place.
func (LlamaCpp) Inexact(pins map[string]string) string {
	if n, err := strconv.Atoi(pins["cache_reuse"]); err != nil || n == 0 {
		return ""
	}
	return "cache_reuse moves chunks of the cache to other positions and keeps what they were computed behind"
}

// LastChunk: a prompt of a model with recurrent layers is cut where the checkpoint before
// its end is made, cache or no cache.
func (LlamaCpp) LastChunk(pins map[string]string, tokens, reused int) int {
	if pins["memory"] == hybrid && tokens-tail > reused {
		reused = tokens - tail
	}
	ubatch, err := strconv.Atoi(pins["ubatch"])
	if err != nil || ubatch < 1 || reused >= tokens {
		return 0
	}
	return (tokens-reused-1)%ubatch + 1
}

// ReadPins reads what /props states: the model, slots, context and seed. Other pins are
// printed at the start and nowhere else: see ReadLog.
func (LlamaCpp) ReadPins(ctx context.Context, e probes.Endpoint, pins map[string]string) ([]probes.PinRead, error) {
	r := newReading(pins)
	var props struct {
		ModelPath string `json:"model_path"`
		Slots     *int   `json:"total_slots"`
		Default   struct {
			Ctx    *int `json:"n_ctx"` // of one slot
			Params struct {
				Seed *uint64 `json:"seed"`
			} `json:"params"`
		} `json:"default_generation_settings"`
	}
	if err := askJSON(ctx, e, "/props", nil, &props); err != nil {
		return r.list(), err
	}
	const source = "/props"
	if props.ModelPath != "" {
		r.read("model", props.ModelPath, source, samePath)
	}
	if props.Slots != nil {
		r.read("slots", strconv.Itoa(*props.Slots), source, nil)
	}
	if s := props.Default.Params.Seed; s != nil {
		r.read("seed", strconv.FormatUint(*s, 10), source, nil)
	}
	if props.Default.Ctx != nil && props.Slots != nil && pins["kv_unified"] == off {
		r.read("ctx", strconv.Itoa(*props.Default.Ctx**props.Slots), source, nil)
	}
	return r.list(), nil
}

// samePath compares a path in the cache with the same path in full.
func samePath(asked, read string) bool {
	return read == asked || !filepath.IsAbs(asked) && strings.HasSuffix(read, "/"+filepath.Clean(asked))
}

// llamaLog finds pins in what the server prints at log level 4 (src/llama-context.cpp,
// src/llama-kv-cache.cpp, common/common.cpp).
var llamaLog = []struct {
	pin  string
	line *regexp.Regexp
	read func(m []string) string
}{
	{"flash_attn", regexp.MustCompile(`llama_context: flash_attn\s+= (\w+)`), func(m []string) string { return enabled(m[1]) }},
	{"kv_unified", regexp.MustCompile(`llama_context: kv_unified\s+= (\w+)`), func(m []string) string { return onOff(m[1] == "true") }},
	{"ctx", regexp.MustCompile(`llama_context: n_ctx\s+= (\d+)`), nil},
	{"batch", regexp.MustCompile(`llama_context: n_batch\s+= (\d+)`), nil},
	{"ubatch", regexp.MustCompile(`llama_context: n_ubatch\s+= (\d+)`), nil},
	{"threads", regexp.MustCompile(`system_info: n_threads = (\d+) \(n_threads_batch = (\d+)\)`), both},
	{"kv_cache_dtype", regexp.MustCompile(`llama_kv_cache: size = .* K \((\w+)\):.* V \((\w+)\):`), both},
	{"cache_ram", regexp.MustCompile(`prompt cache is (?:(disabled)|enabled, size limit: (\d+) MiB)`), func(m []string) string { return zeroOr(m[1], m[2]) }},
	{"ctx_checkpoints", regexp.MustCompile(`context checkpoints (?:(disabled)|enabled, max = (\d+),)`), func(m []string) string { return zeroOr(m[1], m[2]) }},
	{"checkpoint_step", regexp.MustCompile(`context checkpoints enabled, max = \d+, min spacing = (\d+)`), nil},
	{"memory", regexp.MustCompile(`(llama_memory_recurrent): size =`), func([]string) string { return hybrid }},
	{"ggml_backend", regexp.MustCompile(`load_backend: loaded CPU backend from .*libggml-cpu-([\w.]+)\.so`), nil},
}

// both is what two settings agree on, or the two of them.
func both(m []string) string {
	if m[1] == m[2] {
		return m[1]
	}
	return m[1] + "/" + m[2]
}

// zeroOr is "0" for what is disabled, else its size.
func zeroOr(disabled, n string) string {
	if disabled != "" {
		return "0"
	}
	return n
}

func enabled(word string) string {
	switch word {
	case "enabled":
		return on
	case "disabled":
		return off
	}
	return word // auto: the server's choice is not pinned
}

// ReadLog fills in pins that the server prints while it starts, the first time that it
// prints them.
func (LlamaCpp) ReadLog(log io.Reader, reads []probes.PinRead) error {
	sc := bufio.NewScanner(log)
	sc.Buffer(nil, 1<<20)
	found := map[string]string{}
	for sc.Scan() && len(found) < len(llamaLog) {
		for _, l := range llamaLog {
			m := l.line.FindStringSubmatch(sc.Text())
			if _, twice := found[l.pin]; m == nil || twice {
				continue
			}
			found[l.pin] = m[1]
			if l.read != nil {
				found[l.pin] = l.read(m)
			}
		}
	}
	for i, r := range reads {
		if v, ok := found[r.Name]; ok && r.Read == nil {
			agrees := v == r.Asked
			reads[i].Read, reads[i].Agrees, reads[i].Source = &v, &agrees, "log"
		}
	}
	return sc.Err()
}

// Reset erases every slot. With cache_ram 0 nothing else in the process holds prompts; with
// more, erased prompts come back from there.
func (LlamaCpp) Reset(ctx context.Context, e probes.Endpoint) error {
	var slots []struct {
		ID int `json:"id"`
	}
	if err := askJSON(ctx, e, "/slots", nil, &slots); err != nil {
		return err
	}
	for _, s := range slots {
		if _, err := ask(ctx, e, fmt.Sprintf("/slots/%d?action=erase", s.ID), struct{}{}); err != nil {
			return err
		}
	}
	return nil
}

// Store describes the folder of slot files.
func (LlamaCpp) Store(res arms.Resources) (probes.StoreFact, error) { return folderFact(res.Slots) }

// Save writes the slots that the set names, each to its file in Resources.Slots. A slot
// that holds nothing is an error: a restore of it would be no reuse at all.
func (LlamaCpp) Save(ctx context.Context, e probes.Endpoint, s *prompts.Set, res arms.Resources) error {
	return eachSlot(ctx, e, s, "save", "n_saved")
}

// Restore reads the slots that the set names back from their files.
func (LlamaCpp) Restore(ctx context.Context, e probes.Endpoint, s *prompts.Set, res arms.Resources) error {
	return eachSlot(ctx, e, s, "restore", "n_restored")
}

// KeepsSaved: a slot file is written when asked and at no other time.
func (LlamaCpp) KeepsSaved(pins map[string]string) bool { return pins["slot_restore"] == on }

// eachSlot does action for the slots that the set names, in order of their numbers, and
// wants each to be of at least one token.
func eachSlot(ctx context.Context, e probes.Endpoint, s *prompts.Set, action, count string) error {
	var slots []int
	for _, p := range s.Prompts {
		if p.Slot == nil {
			return fmt.Errorf("%s: prompt %q of set %s names no slot: freeze the set with slots", action, p.ID, s.Name)
		}
		slots = append(slots, *p.Slot)
	}
	slices.Sort(slots)
	for _, i := range slices.Compact(slots) {
		var said map[string]any
		body := map[string]string{"filename": llamaSlotFile(i)}
		if err := askJSON(ctx, e, fmt.Sprintf("/slots/%d?action=%s", i, action), body, &said); err != nil {
			var refused *statusError
			if action == "restore" && errors.As(err, &refused) {
				return &arms.RefusedError{What: fmt.Sprintf("%s of slot %d", action, i), Status: refused.status, Says: refused.says}
			}
			return fmt.Errorf("%s slot %d: %w", action, i, err)
		}
		n, err := strconv.Atoi(fmt.Sprint(said[count]))
		if err != nil || n < 1 {
			return fmt.Errorf("%s slot %d: the server says %s = %v, want at least 1 token", action, i, count, said[count])
		}
	}
	return nil
}

// Expect: a slot holds what was last asked of it.
func (LlamaCpp) Expect(s *prompts.Set, pins map[string]string, steps []arms.Step) []map[string]scoring.Reuse {
	p, err := resolve("llamacpp", llamaPins, pins)
	if err != nil {
		return nil
	}
	g := Slots{Reuse: p["cache_prompt"] == on, Files: p["slot_restore"] == on, Host: p["cache_ram"] != "0",
		Hybrid: p["memory"] == hybrid, Says: max(0, s.MaxTokens-1)}
	g.Count, _ = strconv.Atoi(p["slots"])
	g.Similarity, _ = strconv.ParseFloat(p["slot_similarity"], 64)
	g.Chunk, _ = strconv.Atoi(p["cache_reuse"])
	g.Checkpoints, _ = strconv.Atoi(p["ctx_checkpoints"])
	return g.Expect(s, steps)
}

// Death recognises how ggml and the C++ runtime end a process.
func (LlamaCpp) Death(line string) bool {
	for _, sign := range []string{"GGML_ASSERT(", "GGML_ABORT(", "ggml_abort", "terminate called after throwing", "Segmentation fault"} {
		if strings.Contains(line, sign) {
			return true
		}
	}
	return false
}
