package testbed

import (
	"hash/fnv"
	"sync"

	"kvladder/arms/testbed/cache"
	"kvladder/arms/testbed/model"
)

// variants gives the models of one engine as they are asked for. An adapter,
// an image and a configuration epoch each turn the codes of the digits by a
// number of their own, so that KV of one identity is wrong for every other,
// while each by itself answers as well as the base model.
type variants struct {
	seed  uint64
	epoch int
}

// built holds the models made so far: they are immutable, and a process that runs hundreds
// of engines one after another needs a few of them.
var built struct {
	sync.Mutex
	models map[variant]*model.Model
}

type variant struct {
	seed  uint64
	shift int
}

// mostBuilt bounds what is held for good, at half a megabyte each.
const mostBuilt = 64

func modelOf(v variant) *model.Model {
	built.Lock()
	defer built.Unlock()
	m := built.models[v]
	if m == nil {
		m = model.NewVariant(v.seed, v.shift)
		if built.models == nil || len(built.models) >= mostBuilt {
			built.models = map[variant]*model.Model{}
		}
		built.models[v] = m
	}
	return m
}

// of returns the model of an identity.
func (v *variants) of(who cache.Who) *model.Model {
	shift := (3*v.epoch + turn("adapter", who.Adapter) + turn("image", who.Image)) % 10
	return modelOf(variant{v.seed, shift})
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
