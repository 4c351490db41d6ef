package receipts

import "runtime"

// allocated is how many bytes this process has allocated in all.
func allocated() uint64 {
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.TotalAlloc
}
