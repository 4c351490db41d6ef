//go:build !race

package damage

const raceEnabled = false
