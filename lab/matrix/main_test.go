package main

import (
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// docs/compatibility.md is what the results say.
func TestPage_IsUpToDate(t *testing.T) {
	all, err := readResults("../..")
	require.NoError(t, err)
	require.NotEmpty(t, all)
	have, err := os.ReadFile("../../docs/compatibility.md")
	require.NoError(t, err)
	assert.Equal(t, string(page(all)), string(have))
}

func TestPage_SaysWhatWasNotRun(t *testing.T) {
	text := string(page([]result{
		{"Redis 7.0.15", "2026-01-02", map[string][]string{"library": {}, "scripts": {"TestX", "TestY"}}},
		{"Valkey 8.1.3", "2026-01-03", map[string][]string{"library": {}, "scripts": {}, "command": {}}},
	}))
	for _, row := range []string{
		"| Redis 6.2 |  | not run | not run | not run |",
		"| Redis 7.0.15 | 2026-01-02 | passed | failed: TestX, TestY | not run |",
		"| Valkey 8.1.3 | 2026-01-03 | passed | passed | passed |",
	} {
		assert.Contains(t, text, row+"\n")
	}
	assert.NotContains(t, text, "| Valkey 8 |")
}

func TestNameOf(t *testing.T) {
	for output, want := range map[string]string{
		"Redis server v=7.0.15 sha=00000000:0 malloc=jemalloc-5.3.0 bits=64 build=x\n": "Redis 7.0.15",
		"Valkey server v=8.0.1 sha=00000000:1 malloc=libc bits=64 build=y\n":           "Valkey 8.0.1",
	} {
		have, err := nameOf(output)
		require.NoError(t, err)
		assert.Equal(t, want, have)
	}
	_, err := nameOf("cp (GNU coreutils) 9.1\n")
	assert.ErrorContains(t, err, "coreutils")
}

func TestFailures(t *testing.T) {
	failed, output := failures([]byte(strings.Join([]string{
		`# broken`,
		`{"Action":"output","Package":"p","Test":"TestA/one","Output":"one is wrong\n"}`,
		`{"Action":"fail","Package":"p","Test":"TestA/one"}`,
		`{"Action":"fail","Package":"p","Test":"TestA"}`,
		`{"Action":"output","Package":"p","Test":"TestB","Output":"fine\n"}`,
		`{"Action":"pass","Package":"p","Test":"TestB"}`,
		`{"Action":"fail","Package":"p"}`,
	}, "\n")))
	assert.Equal(t, []string{"TestA"}, failed)
	assert.Equal(t, "one is wrong\n", output)
	failed, _ = failures([]byte(`{"Action":"fail","Package":"p"}`))
	assert.Equal(t, []string{"p"}, failed)
}
