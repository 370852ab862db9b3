package gocronfairlock_test

import (
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// Each line of the README's code stands in an example.
func TestTheCodeOfTheReadmeRuns(t *testing.T) {
	t.Parallel()
	readme, err := os.ReadFile("README.md")
	require.NoError(t, err)
	examples, err := os.ReadFile("example_test.go")
	require.NoError(t, err)
	lines := map[string]bool{}
	for line := range strings.Lines(string(examples)) {
		lines[strings.TrimSpace(line)] = true
	}
	blocks := regexp.MustCompile("(?ms)^```go\n(.*?)^```$").FindAllSubmatch(readme, -1)
	require.Len(t, blocks, 3)
	for _, block := range blocks {
		for line := range strings.Lines(string(block[1])) {
			assert.True(t, lines[strings.TrimSpace(line)], line)
		}
	}
}
