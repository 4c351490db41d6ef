package testbed

import (
	"hash/fnv"
	"sync"

	"kvladder/arms/testbed/cache"
	"kvladder/arms/testbed/model"
)

// variants builds the models of one process as they are asked for. An adapter,
// an image and a configuration epoch each turn the codes of the digits by a
// number of their own, so that KV of one identity is wrong for every other,
// while each by itself answers as well as the base model.
type variants struct {
	seed  uint64
	epoch int

	mu    sync.Mutex
	built [10]*model.Model
}

// of returns the model of an identity.
func (v *variants) of(who cache.Who) *model.Model {
	shift := (3*v.epoch + turn("adapter", who.Adapter) + turn("image", who.Image)) % 10
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.built[shift] == nil {
		v.built[shift] = model.NewVariant(v.seed, shift)
	}
	return v.built[shift]
}

// turn is 0 for no name and 1 to 9 for others.
func turn(kind, name string) int {
	if name == "" {
		return 0
	}
	h := fnv.New32a()
	h.Write([]byte(kind + "\x00" + name))
	return 1 + int(h.Sum32()%9)
}
