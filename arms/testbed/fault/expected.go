package fault

import _ "embed"

// Expected is the table that a ladder is held to: what it must say of each fault.
//
//go:embed expected.yaml
var Expected []byte
