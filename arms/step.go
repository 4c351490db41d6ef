package arms

// Step is one step of an arm's schedule.
type Step struct {
	Do   string   `json:"do"` // one of Steps
	Args []string `json:"args,omitempty"`
	Pass int      `json:"pass,omitempty"` // for replay: which pass of the arm this is, 1-based
}

// The steps a schedule is made of, each with what it does.
var Steps = map[string]string{
	"replay":  "send every prompt of the set, one after another on each client",
	"prime":   "for each prompt: send its prime, then the whole prompt (one pass)",
	"drain":   "wait until the engine's store counters stand still",
	"reset":   "drop the local cache alone",
	"restart": "stop the process and start it again over the same store",
	"save":    "have the engine write its reuse state (llama-server slots)",
	"restore": "have the engine read it back",
	"corrupt": "flip bytes of a stored file: corrupt FILE OFFSET N",
	"stop":    "stop the process",
}
