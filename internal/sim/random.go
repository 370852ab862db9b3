//go:build go1.26

package sim

import (
	"testing"
	"testing/cryptotest"
)

// tokensRepeat: the same seed gives the same tokens.
const tokensRepeat = true

// seedTokens has tokens drawn from a seed.
func seedTokens(t *testing.T, seed uint64) {
	t.Helper()
	cryptotest.SetGlobalRandom(t, seed)
}
