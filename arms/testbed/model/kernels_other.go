//go:build !amd64

package model

func dotPanel(dst []float32, stride int, x []float32, n int, w []float32, rows int) {
	dotPanelGo(dst, stride, x, n, w, rows)
}

func weigh(acc []float32, sum float32, e, values []float32) float32 {
	return weighGo(acc, sum, e, values)
}

func expShift(dst, src []float32, shift float32) { expShiftGo(dst, src, shift) }

func maxAbove(x []float32, floor float32) float32 { return maxAboveGo(x, floor) }

func decayRead(s []float32, alpha float32, k *[recK]float32, p *[recV]float32) {
	decayReadGo(s, alpha, k, p)
}

func writeRead(s []float32, k *[recK]float32, u *[recV]float32, q *[recK]float32, o *[recV]float32) {
	writeReadGo(s, k, u, q, o)
}
