//go:build race

package damage

// raceEnabled: the race detector makes the arithmetic some twenty times slower.
const raceEnabled = true
