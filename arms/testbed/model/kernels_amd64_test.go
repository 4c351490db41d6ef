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

// TestAVX2 holds the kernels of processors without AVX-512, where this one has it.
func TestAVX2(t *testing.T) {
	if !widest {
		t.Skip("this processor has no AVX-512: these kernels are in use anyway")
	}
	widest = false
	defer func() { widest = true }()
	TestKernels(t)
	checkRuns(t, goldens(t)[0], 3)
}
