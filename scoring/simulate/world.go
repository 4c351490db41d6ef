package simulate

// World is the truth that ladders are drawn from. Log probabilities are in nats.
type World struct {
	Requests  int // of the Set, each a class of its own
	Documents int // that the requests share
	Controls  int // processes of the control, the reference among them
	Arms      int // judged arms, none of which is corrupt but the first

	// Flake is the chance that a reply is wrong for a reason that has nothing to do with
	// reuse, in control and arm alike, every reply by itself.
	Flake float64

	// Together is the share of those that do not come alone: a document in one process is
	// struck as a whole, and all its replies there are wrong. A single reply is wrong as
	// often as ever. 0: flakes know nothing of each other, which is what the exact tests
	// suppose.
	Together float64

	// Process, Document and Reply are standard deviations of three shifts of a log
	// probability: shared by all replies of a process, by those of a document in one
	// process, and by nothing. Documents differ in how large all three are: by a factor
	// that is log-normal with standard deviation Spread. All 0: every process computes the
	// same bits.
	Process, Document, Reply, Spread float64

	// Defect is the chance that a request is one that the first arm corrupts: such a
	// request fails whenever that arm is climbed. 0: the null holds.
	Defect float64
}

// Null is the world without any corruption at a flake rate. A process computes all its
// replies by the same kernels on the same device, so most of what moves a log probability
// is shared by the process or by a document in it.
func Null(flake float64) World {
	return World{Requests: 38, Documents: 18, Controls: 3, Arms: 3, Flake: flake,
		Process: 0.001, Document: 0.0005, Reply: 0.0003, Spread: 0.3}
}

// NullTogether is Null with half of the flakes striking whole documents.
func NullTogether(flake float64) World {
	w := Null(flake)
	w.Together = 0.5
	return w
}

// Corrupt is a world in which every process computes the same bits, no reply is wrong by
// accident, and the first of arms corrupts each of n requests with chance rate.
func Corrupt(n, arms int, rate float64) World {
	return World{Requests: n, Documents: n, Controls: 3, Arms: arms, Defect: rate}
}
