package model

import "testing"

// TestPortable runs the golden figures through the portable kernels, which are
// otherwise idle on this architecture.
func TestPortable(t *testing.T) {
	if !wide {
		t.Skip("this processor has no AVX2: the portable kernels are in use anyway")
	}
	wide = false
	defer func() { wide = true }()
	TestGoldenRuns(t)
}
