// Package golden compares texts with files, for tests.
package golden

import (
	"flag"
	"os"
	"testing"

	"github.com/stretchr/testify/require"
)

var update = flag.Bool("update", false, "write the golden files in testdata anew")

// Equal asserts that text equals a file in testdata. With -update, it writes text there.
func Equal(t *testing.T, file, text string) {
	t.Helper()
	path := "testdata/" + file
	if *update {
		require.NoError(t, os.WriteFile(path, []byte(text), 0o600))
	}
	want, err := os.ReadFile(path)
	require.NoError(t, err)
	require.Equal(t, string(want), text)
}

// Updating reports whether -update is set.
func Updating() bool { return *update }
