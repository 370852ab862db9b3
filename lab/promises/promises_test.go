package promises_test

import (
	"flag"
	"os"
	"testing"
	"testing/fstest"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/fairlock/fairlock-go/lab/promises"
)

var write = flag.Bool("write", false, "write tests.txt")

// tests.txt agrees with the tests. To write it: go test ./lab/promises -write.
func TestGenerate_ListIsUpToDate(t *testing.T) {
	const name = "tests.txt"
	want, err := promises.Generate(os.DirFS("../.."))
	require.NoError(t, err)
	if *write {
		require.NoError(t, os.WriteFile(name, want, 0o644))
	}
	have, err := os.ReadFile(name)
	require.NoError(t, err)
	assert.Equal(t, string(want), string(have), "run: go test ./lab/promises -write")
}

func TestGenerate(t *testing.T) {
	tree := func(directives string) fstest.MapFS {
		return fstest.MapFS{"lua/x_test.go": {Data: []byte("package x\n\n// TestX.\n" + directives + "func TestX() {}\n")}}
	}
	text, err := promises.Generate(tree("//fairlock:promise Order: it is kept\n//fairlock:fault Crash: nothing happens\n"))
	require.NoError(t, err)
	assert.Contains(t, string(text), "\npromise Order: it is kept\n\tTestX (lua)\n")
	assert.Contains(t, string(text), "\nfault Crash: nothing happens\n\tTestX (lua)\n")
	for directives, want := range map[string]string{
		"//fairlock:promise Order\n":                                 `promise "Order" has no outcome; its tests: [TestX (lua)]`,
		"//fairlock:promise Order: a\n//fairlock:promise Order: b\n": `"Order" has two outcomes: "a" and "b"`,
		"//fairlock:promises Order: a\n":                             "want //fairlock:promise or //fairlock:fault, and a name",
		"//fairlock:fault\n":                                         "want //fairlock:promise or //fairlock:fault, and a name",
	} {
		_, err := promises.Generate(tree(directives))
		assert.ErrorContains(t, err, want)
	}
}
