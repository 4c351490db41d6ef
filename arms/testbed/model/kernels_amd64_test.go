package model

import "testing"

// TestPortable runs one golden prompt in each format through the portable
// kernels, which are otherwise idle on this architecture.
func TestPortable(t *testing.T) {
	if !wide {
		t.Skip("this processor has no AVX2: the portable kernels are in use anyway")
	}
	wide = false
	defer func() { wide = true }()
	checkRuns(t, goldens(t)[0], 3)
}
