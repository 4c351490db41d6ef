//go:build race

package testbed

// raceEnabled: the race detector makes the arithmetic some twenty times slower.
const raceEnabled = true
