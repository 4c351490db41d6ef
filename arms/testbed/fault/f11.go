package fault

import (
	"kvladder/arms/testbed/cache"
	"kvladder/arms/testbed/sched"
	"kvladder/arms/testbed/store"
)

// The store's key made without a part of the identity that the local cache's
// hashes have: what one tenant, adapter or image computed is given to another.
var (
	saltForgotten = identityForgotten("F11-salt", "the store key leaves out the tenant's salt",
		func(w *cache.Who) { w.Salt = "" })
	adapterForgotten = identityForgotten("F11-adapter", "the store key leaves out the adapter",
		func(w *cache.Who) { w.Adapter = "" })
	imageForgotten = identityForgotten("F11-image", "the store key leaves out the image",
		func(w *cache.Who) { w.Image = "" })
	allForgotten = identityForgotten("F11-none", "the store key has no identity at all, only tokens",
		func(w *cache.Who) { *w = cache.Who{} })
)

// localSaltForgotten leaves the salt out of the block hashes themselves: one tenant's blocks
// are found by another in the local cache, with or without a store, and in a store that
// builds its keys on them. A salt changes no KV, so no text can show it.
var localSaltForgotten = Fault{
	ID:      "F11-local",
	Summary: "block hashes of the local cache leave out the tenant's salt",
	Plant: func(p *sched.Path) {
		healthy := p.Cache.Extra
		p.Cache.Extra = func(w cache.Who) string {
			w.Salt = ""
			return healthy(w)
		}
	},
}

func identityForgotten(id, summary string, forget func(*cache.Who)) Fault {
	return Fault{ID: id, Summary: summary, Plant: func(p *sched.Path) {
		healthy := p.Store.Keys
		p.Store.Keys = func(id store.Identity, x store.Prefix) []store.Key {
			forget(&x.Who)
			covered := len(x.Chain) * x.Geometry.Filled().Block
			x.Chain = cache.Chain(x.Root, x.Tokens[:covered], x.Who.Extra(), x.Geometry.Filled().Block)
			return healthy(id, x)
		}
	}}
}
