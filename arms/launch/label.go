package launch

import (
	"crypto/rand"
	"encoding/hex"
	"os"
	"strconv"
)

// What outlives this program carries a label of two parts, so that a later one finds it:
// the run folder it was launched for, and the user who launched it. Nothing that lacks
// either part is ever listed, let alone ended.
const (
	labelFolder = "kvladder.folder"
	labelUser   = "kvladder.user"
)

func user() string { return strconv.Itoa(os.Getuid()) }

// unique is a name that nothing else has.
func unique() string {
	var b [6]byte
	rand.Read(b[:])
	return "kvladder-" + hex.EncodeToString(b[:])
}
