package model

// The portable kernels. They define the arithmetic; an architecture with
// assembly must give the same bits, which kernels_test.go checks. The one thing
// left open is which NaN comes out where several go in.

// dotPanelGo computes dst[r*stride+c] = dot4(row r of x, column c of w) for
// each row of x [rows][n] and the sixteen columns of the panel w [n][16].
func dotPanelGo(dst []float32, stride int, x []float32, n int, w []float32, rows int) {
	for r := range rows {
		var sum [4][panelWidth]float32
		for i, a := range x[r*n : r*n+n] {
			s := &sum[i&3]
			for c, b := range w[i*panelWidth:][:panelWidth] {
				s[c] += float32(a * b)
			}
		}
		for c := range panelWidth {
			dst[r*stride+c] = (sum[0][c] + sum[1][c]) + (sum[2][c] + sum[3][c])
		}
	}
}

// weighGo adds e[j] times row j of values [len(e)][len(acc)] to acc, and e[j]
// to sum, j ascending; it returns the sum. A weight of 0 is not skipped.
func weighGo(acc []float32, sum float32, e, values []float32) float32 {
	for j, w := range e {
		sum += w
		for i, v := range values[j*len(acc):][:len(acc)] {
			acc[i] += float32(w * v)
		}
	}
	return sum
}

// expShiftGo sets dst[i] = exp32(src[i] - shift).
func expShiftGo(dst, src []float32, shift float32) {
	for i, x := range src {
		dst[i] = exp32(x - shift)
	}
}

// maxAboveGo returns the largest of floor and x; NaN is never larger.
func maxAboveGo(x []float32, floor float32) float32 {
	for _, v := range x {
		if v > floor {
			floor = v
		}
	}
	return floor
}

// decayReadGo scales the head state s [recK][recV] by alpha and sets p to the
// sum over i of k[i] times its row i.
func decayReadGo(s []float32, alpha float32, k *[recK]float32, p *[recV]float32) {
	*p = [recV]float32{}
	for i, w := range k {
		r := s[i*recV:][:recV]
		for j := range r {
			r[j] = alpha * r[j]
			p[j] += float32(r[j] * w)
		}
	}
}

// writeReadGo adds the outer product of k and u to the head state s and sets o
// to the sum over i of q[i] times its new row i.
func writeReadGo(s []float32, k *[recK]float32, u *[recV]float32, q *[recK]float32, o *[recV]float32) {
	*o = [recV]float32{}
	for i := range recK {
		r := s[i*recV:][:recV]
		for j := range r {
			r[j] += float32(k[i] * u[j])
			o[j] += float32(r[j] * q[i])
		}
	}
}
