//go:build !go1.26

package sim

import "testing"

// tokensRepeat: tokens differ from run to run, and nothing depends on them.
const tokensRepeat = false

func seedTokens(*testing.T, uint64) {}
