package compare

// SignResult holds the p-values of a sign test.
type SignResult struct {
	OneSided float64 `json:"one_sided"` // toward more pairs that fell than rose
	TwoSided float64 `json:"two_sided"`
}

// SignTest asks whether paired values fell more often than they rose (a first
// mismatch that comes earlier under the arm is a fall). Ties are left out by the
// caller. It is one pair, one vote, so a request that diverges very early weighs
// no more than one that diverges a little early.
//
// Arbuthnot (Phil. Trans. 1710); Dixon & Mood, "The statistical sign test"
// (JASA 1946).
func SignTest(rose, fell int) SignResult {
	r := McNemar(rose, fell)
	return SignResult{OneSided: r.OneSided, TwoSided: r.TwoSided}
}
