package model

import "golang.org/x/sys/cpu"

// wide says whether the assembly may run. It multiplies and adds in separate
// instructions, never fused, so it needs AVX2 but not FMA.
var wide = cpu.X86.HasAVX2

// widest says whether its one kernel of sixteen lanes may run too.
var widest = wide && cpu.X86.HasAVX512F

func dotPanel(dst []float32, stride int, x []float32, n int, w []float32, rows int) {
	if !wide || rows < 1 || n%4 != 0 {
		dotPanelGo(dst, stride, x, n, w, rows)
		return
	}
	_, _, _ = dst[(rows-1)*stride+panelWidth-1], x[rows*n-1], w[n*panelWidth-1]
	if widest {
		dotPanelAVX512(&dst[0], stride, &x[0], n, &w[0], rows)
		return
	}
	dotPanelAVX2(&dst[0], stride, &x[0], n, &w[0], rows)
}

func weigh(acc []float32, sum float32, e, values []float32) float32 {
	if !wide || len(e) == 0 || len(acc) != 32 && len(acc) != 40 {
		return weighGo(acc, sum, e, values)
	}
	_ = values[len(e)*len(acc)-1]
	if len(acc) == 32 {
		return weigh32AVX2(&acc[0], sum, &e[0], &values[0], len(e))
	}
	return weigh40AVX2(&acc[0], sum, &e[0], &values[0], len(e))
}

func expShift(dst, src []float32, shift float32) {
	n := 0
	if wide && len(src) >= 8 {
		n = len(src) &^ 7
		_ = dst[n-1]
		expShiftAVX2(&dst[0], &src[0], shift, n)
	}
	expShiftGo(dst[n:], src[n:], shift)
}

func maxAbove(x []float32, floor float32) float32 {
	n := 0
	if wide && len(x) >= 8 {
		n = len(x) &^ 7
		floor = maxAboveAVX2(&x[0], n, floor)
	}
	return maxAboveGo(x[n:], floor)
}

func decayRead(s []float32, alpha float32, k *[recK]float32, p *[recV]float32) {
	if !wide {
		decayReadGo(s, alpha, k, p)
		return
	}
	_ = s[recK*recV-1]
	decayReadAVX2(&s[0], alpha, k, p)
}

func writeRead(s []float32, k *[recK]float32, u *[recV]float32, q *[recK]float32, o *[recV]float32) {
	if !wide {
		writeReadGo(s, k, u, q, o)
		return
	}
	_ = s[recK*recV-1]
	writeReadAVX2(&s[0], k, u, q, o)
}

// The assembly, in kernels_amd64.s. Lengths n are elements.

// rows >= 1, n a positive multiple of 4.
//
//go:noescape
func dotPanelAVX2(dst *float32, stride int, x *float32, n int, w *float32, rows int)

// rows >= 1, n a positive multiple of 4.
//
//go:noescape
func dotPanelAVX512(dst *float32, stride int, x *float32, n int, w *float32, rows int)

// n >= 1 rows of 32 values.
//
//go:noescape
func weigh32AVX2(acc *float32, sum float32, e, values *float32, n int) float32

// n >= 1 rows of 40 values.
//
//go:noescape
func weigh40AVX2(acc *float32, sum float32, e, values *float32, n int) float32

// n a positive multiple of 8.
//
//go:noescape
func expShiftAVX2(dst, src *float32, shift float32, n int)

// n a positive multiple of 8.
//
//go:noescape
func maxAboveAVX2(x *float32, n int, floor float32) float32

//go:noescape
func decayReadAVX2(s *float32, alpha float32, k *[recK]float32, p *[recV]float32)

//go:noescape
func writeReadAVX2(s *float32, k *[recK]float32, u *[recV]float32, q *[recK]float32, o *[recV]float32)
