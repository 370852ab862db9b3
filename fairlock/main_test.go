package fairlock_test

import (
	"os"
	"runtime/debug"
	"testing"

	lua "github.com/yuin/gopher-lua"
)

// The server in memory makes a Lua state for each script. Stacks of the default size cost a fifth of the time of these
// tests: they are allocated, cleared and collected.
func TestMain(m *testing.M) {
	lua.RegistrySize, lua.CallStackSize = 2048, 64
	debug.SetGCPercent(400)
	os.Exit(m.Run())
}
