package engine

import (
	"bufio"
	"io"
	"regexp"
	"strconv"

	"kvladder/arms"
	"kvladder/probes"
)

// What llama-server prints of each request at log level 4 (tools/server/server-context.cpp,
// server-task.cpp), in this order:
//
//	srv          load:  - found better prompt with f_keep = 0.903, f_sim = 1.000
//	slot launch_slot_: id  0 | task 37 | processing task, is_child = 0
//	slot   operator(): id  0 | task 37 | restored context checkpoint (pos_min = 196, pos_max = 196, n_tokens = 197, ...
//	slot   operator(): id  0 | task 37 | reusing chunk with size 200, shifting KV cache [97, 297) -> [17, 217)
//	slot   operator(): id  0 | task 37 | cached n_tokens = 64, memory_seq_rm [64, end)
//
// The last line comes once for every batch of the prompt; the first of them is what was
// reused.
var (
	taskFromHost   = regexp.MustCompile(`srv\s+load:\s+- found better prompt with f_keep`)
	taskBegins     = regexp.MustCompile(`launch_slot_: id\s+(\d+) \| task (\d+) \| processing task`)
	taskCheckpoint = regexp.MustCompile(`restored context checkpoint \(.*n_tokens = (\d+)`)
	taskChunk      = regexp.MustCompile(`reusing chunk with size (\d+)`)
	taskCached     = regexp.MustCompile(`cached n_tokens = (\d+)`)
	restoreFails   = regexp.MustCompile(` E (?:llama_)?state_(?:read_data|seq_load_file): (.+)`)
	hostState      = regexp.MustCompile(`cache state: (\d+) prompts, `)
)

// Task is what the log says of one request.
type Task struct {
	ID, Slot   int
	Cached     int  // tokens of the prompt that were not computed; -1 = not told
	FromHost   bool // what the slot held was first replaced by a prompt of the host's cache
	Checkpoint int  // tokens up to the checkpoint that was restored; 0 = none was
	Moved      int  // tokens in chunks that were moved to other positions
}

// Tasks reads the log of llama-server and returns its requests in the order in which they
// were begun.
func Tasks(log io.Reader) ([]Task, error) {
	sc := bufio.NewScanner(log)
	sc.Buffer(nil, 1<<20)
	var out []Task
	host := false
	for sc.Scan() {
		line := sc.Text()
		if taskFromHost.MatchString(line) {
			host = true
			continue
		}
		if m := taskBegins.FindStringSubmatch(line); m != nil {
			t := Task{Cached: -1, FromHost: host}
			t.Slot, _ = strconv.Atoi(m[1])
			t.ID, _ = strconv.Atoi(m[2])
			out, host = append(out, t), false
			continue
		}
		if len(out) == 0 {
			continue
		}
		t := &out[len(out)-1]
		if t.Cached >= 0 { // it computes, and what is printed now is of a further batch
			continue
		}
		if m := taskCheckpoint.FindStringSubmatch(line); m != nil {
			t.Checkpoint, _ = strconv.Atoi(m[1])
		} else if m := taskChunk.FindStringSubmatch(line); m != nil {
			n, _ := strconv.Atoi(m[1])
			t.Moved += n
		} else if m := taskCached.FindStringSubmatch(line); m != nil {
			t.Cached, _ = strconv.Atoi(m[1])
		}
	}
	return out, sc.Err()
}

// Account: where the host keeps prompts, the reply counts cached tokens and only the log
// says whether they were in the slot or came from there. They came from there as a whole or
// not at all.
func (LlamaCpp) Account(log io.Reader, pins map[string]string) ([]arms.Load, bool, error) {
	if pins["cache_ram"] == "0" || pins["slot_restore"] == on {
		return nil, false, nil
	}
	tasks, err := Tasks(log)
	if err != nil {
		return nil, false, err
	}
	var out []arms.Load
	for _, t := range tasks {
		if t.Cached < 0 {
			continue
		}
		l := arms.Load{Load: probes.Load{Local: t.Cached}}
		if t.FromHost {
			l.Local, l.External = 0, t.Cached
		}
		out = append(out, l)
	}
	return out, true, nil
}

// Explain: the reply to a refused restore is the same for every cause, and the line before it
// names it (src/llama-kv-cache.cpp, src/llama-context.cpp):
//
//	0.00.032.832 E state_read_data: mismatched key type (30 != 1, layer 0)
//	0.00.033.380 E llama_state_seq_load_file: error loading sequence state file: failed to restore kv cache
func (LlamaCpp) Explain(lines []string) string {
	for _, line := range lines {
		if m := restoreFails.FindStringSubmatch(line); m != nil {
			return m[1]
		}
	}
	return ""
}

// Kept is how many prompts the host's cache held when the server last said so; a server that
// has not said so yet holds none.
func (LlamaCpp) Kept(log io.Reader, pins map[string]string) (probes.StoreFact, bool, error) {
	if pins["cache_ram"] == "0" || pins["slot_restore"] == on {
		return probes.StoreFact{}, false, nil
	}
	n := 0
	sc := bufio.NewScanner(log)
	sc.Buffer(nil, 1<<20)
	for sc.Scan() {
		if m := hostState.FindStringSubmatch(sc.Text()); m != nil {
			n, _ = strconv.Atoi(m[1])
		}
	}
	return probes.StoreFact{Chunks: &n}, true, sc.Err()
}
