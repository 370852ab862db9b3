package token_test

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"os"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/fairlock/fairlock-go/internal/bounds"
	"github.com/fairlock/fairlock-go/internal/tokens"
	"github.com/fairlock/fairlock-go/internal/tools/golden"
	"github.com/fairlock/fairlock-go/token"
)

func TestNew_Has128RandomBits(t *testing.T) {
	const n = 4096
	seen := map[token.Token]bool{}
	ones := make([]int, 128)
	for range n {
		tok, err := token.Parse(tokens.New("host-1-ab", tokens.Terms{TTL: time.Minute, Weight: 1}))
		require.NoError(t, err)
		require.Equal(t, "host-1-ab", tok.Client())
		require.False(t, seen[tok], "a token came twice")
		seen[tok] = true
		for i, b := range randomBytes(t, tok) {
			for bit := range 8 {
				ones[i*8+bit] += int(b >> bit & 1)
			}
		}
	}
	for bit, k := range ones { // 8 standard deviations: a fixed bit fails, chance does not
		assert.InDelta(t, n/2, k, 8*32, "bit %d is not random", bit)
	}
}

// randomBytes decodes the random part of a token.
func randomBytes(t *testing.T, tok token.Token) []byte {
	b, err := base64.RawURLEncoding.DecodeString(tok.Text()[len(tok.Text())-22:])
	require.NoError(t, err)
	return b
}

// A token says what it was made with; a TTL is rounded up. What is out of bounds makes none.
func TestNew_Terms(t *testing.T) {
	for _, terms := range []tokens.Terms{
		{TTL: bounds.MinTTL, Weight: 1}, {TTL: bounds.MaxTTL, Weight: 1, Flags: 35},
		{TTL: time.Second + 1, Weight: 1, Permits: 1, Flags: tokens.Released},
		{TTL: time.Second, Weight: 2, Permits: 3, Flags: tokens.MinHold | tokens.Released},
		{TTL: time.Second, Weight: bounds.MaxPermits, Permits: bounds.MaxPermits},
		{TTL: time.Second, Weight: 1, Permits: bounds.MaxPermits},
		{TTL: time.Second, Weight: 2, Permits: 3, Key: "tenant-17", KeyLimit: 2, Share: 1, Flags: tokens.MinHold},
		{TTL: time.Second, Weight: 1, Permits: 1, Key: "a:b %ü\x00", KeyLimit: bounds.MaxPermits, Share: bounds.MaxShare},
		{TTL: time.Second, Weight: 1, Permits: 1, Key: strings.Repeat("\xff", bounds.MaxKey), Share: 3},
		{TTL: time.Second, Weight: 1, Flags: tokens.Leader}, {TTL: time.Second, Weight: 1, Flags: tokens.Leader | 1,
			Address: "[fd00::1]:8080"},
		{TTL: time.Second, Weight: 1, Flags: tokens.Leader, Address: "10.0.0.3:808"}, // as long as weight and permits
		{TTL: time.Second, Weight: 1, Flags: tokens.Leader, Address: strings.Repeat(" ", bounds.MaxClient)},
	} {
		tok, err := token.Parse(tokens.New("c", terms))
		require.NoError(t, err)
		terms.TTL = (terms.TTL + time.Millisecond - 1).Truncate(time.Millisecond)
		assert.Equal(t, terms, termsOf(t, tok))
	}
	for _, terms := range []tokens.Terms{ // testdata/tokens.txt has others
		{TTL: -time.Second, Weight: 1},
		{TTL: time.Second, Weight: 2},
		{TTL: time.Second, Weight: -1, Permits: 1},
		{TTL: time.Second, Weight: math.MinInt, Permits: 1},
		{TTL: time.Second, Weight: 1, Permits: -1},
		{TTL: time.Second, Weight: 1, Permits: math.MaxInt},
		{TTL: time.Second, Weight: 1, Flags: 36},
		{TTL: time.Second, Weight: 1, Flags: -1},
		{TTL: time.Second, Weight: 1, Key: "a", Share: 1},
		{TTL: time.Second, Weight: 1, Permits: 1, Share: 1},
		{TTL: time.Second, Weight: 1, Permits: 1, KeyLimit: 1},
		{TTL: time.Second, Weight: 1, Permits: 1, Key: "a", Share: -1},
		{TTL: time.Second, Weight: 2, Permits: 3, Key: "a", KeyLimit: 1, Share: 1},
		{TTL: time.Second, Weight: 1, Permits: 1, Key: "a", KeyLimit: -1, Share: 1},
		{TTL: time.Second, Weight: 1, Permits: 1, Key: "a", KeyLimit: bounds.MaxPermits + 1, Share: 1},
	} {
		_, err := token.Parse(tokens.New("c", terms))
		require.ErrorIs(t, err, token.ErrMalformed, "%+v", terms)
	}
	assert.Zero(t, termsOf(t, token.Token{}))
	assert.Equal(t, "(no token)", token.Token{}.String())
}

// termsOf returns what a token says, also by its methods.
func termsOf(t *testing.T, tok token.Token) tokens.Terms {
	t.Helper()
	terms := tok.Terms()
	require.Equal(t, tok.TTL(), terms.TTL)
	require.Equal(t, tok.Weight(), terms.Weight)
	return terms
}

// secretLen is how many characters at the end of a token nobody may see.
const secretLen = 18

// Each text of testdata/tokens.txt, and what Parse makes of it. "<22 A>" stands for 22 times an A. What it accepts, New
// writes.
func TestParse_Texts(t *testing.T) {
	text, err := os.ReadFile("testdata/tokens.txt")
	require.NoError(t, err)
	var parsed strings.Builder
	for line := range strings.Lines(string(text)) {
		quoted, _, ok := strings.Cut(strings.TrimSuffix(line, "\n"), " => ")
		if !ok {
			parsed.WriteString(line)
			continue
		}
		fmt.Fprintf(&parsed, "%s => ", quoted)
		tok, err := token.Parse(unquoted(t, quoted))
		if err != nil {
			fmt.Fprintf(&parsed, "%.120q\n", err.Error())
			continue
		}
		terms, random := tok.Terms(), tok.Text()[len(tok.Text())-tokens.RandomLen:]
		assert.Equal(t, tok.Client()+":"+random[:tokens.RandomLen-secretLen]+"…", tok.String())
		again := tokens.New(tok.Client(), terms)
		assert.Equal(t, tok.Text()[:len(tok.Text())-tokens.RandomLen], again[:len(again)-tokens.RandomLen])
		fmt.Fprintf(&parsed, "%.20s: TTL %v, weight %d of %d, flags %d, key or address %q, limit %d, share %d\n", tok.Client(),
			terms.TTL, terms.Weight, terms.Permits, terms.Flags, terms.Key+terms.Address, terms.KeyLimit, terms.Share)
	}
	golden.Equal(t, "tokens.txt", parsed.String())
}

var repeated = regexp.MustCompile(`<(\d+) (.+?)>`)

// unquoted returns a text of testdata/tokens.txt.
func unquoted(t *testing.T, quoted string) string {
	t.Helper()
	text, err := strconv.Unquote(quoted)
	require.NoError(t, err, quoted)
	return repeated.ReplaceAllStringFunc(text, func(what string) string {
		parts := repeated.FindStringSubmatch(what)
		n, err := strconv.Atoi(parts[1])
		require.NoError(t, err)
		return strings.Repeat(parts[2], n)
	})
}

// Whatever Parse accepts, New writes, and nothing that is printed shows the secret.
func FuzzParse(f *testing.F) {
	random := strings.Repeat("A", tokens.RandomLen)
	for _, text := range []string{
		"a:2.00007ps0" + random, "c:2.00000200000300007ps1" + random, "c:2.a%3A000004010000020000050000a000" + random,
		"c:2.10.0.0.3%3A80800007ps4" + random, "c:1.x", ":", "c:2.00007ps0\r\n" + random[2:],
	} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		tok, err := token.Parse(text)
		if err != nil {
			var other *token.LayoutError
			require.True(t, errors.As(err, &other) || errors.Is(err, token.ErrMalformed))
			require.True(t, tok.IsZero())
			if len(text) > 2*secretLen {
				require.NotContains(t, err.Error(), text[len(text)-secretLen:], "an error must not print the secret")
			}
			return
		}
		require.Equal(t, text, tok.Text())
		require.Len(t, randomBytes(t, tok), 16)
		again := tokens.New(tok.Client(), termsOf(t, tok))
		require.Equal(t, text[:len(text)-tokens.RandomLen], again[:len(again)-tokens.RandomLen])

		// The twin differs in every character of the secret, and nowhere else.
		twin, err := token.Parse(text[:len(text)-secretLen] + strings.Map(func(r rune) rune {
			return map[bool]rune{true: 'Q', false: 'A'}[r == 'A']
		}, text[len(text)-secretLen:]))
		require.NoError(t, err)
		require.NotEqual(t, tok, twin)
		was := printed(t, twin)
		for how, text := range printed(t, tok) {
			require.Equal(t, was[how], text, "%s depends on the secret", how)
		}
	})
}

// printed is a token in all the ways in which it can be written down, but for Text.
func printed(t *testing.T, tok token.Token) map[string]string {
	t.Helper()
	all := map[string]string{"String": tok.String(), "LogValue": tok.LogValue().String()}
	values := map[string]any{
		"a token": tok, "a pointer": &tok, "a field": struct{ T token.Token }{tok}, "a list": []token.Token{tok},
		"a key": map[token.Token]int{tok: 1},
	}
	for what, v := range values {
		for _, verb := range "vsqxXTdtbcoOUeEfFgG!" {
			for _, flags := range []string{"", "+", "#", "300.200"} {
				format := "%" + flags + string(verb)
				all[format+" of "+what] = fmt.Sprintf(format, v)
			}
		}
		text, err := json.Marshal(v)
		all["the JSON of "+what] = fmt.Sprint(string(text), err)
	}
	untimed := &slog.HandlerOptions{ReplaceAttr: func(_ []string, a slog.Attr) slog.Attr {
		if a.Key == slog.TimeKey {
			return slog.Attr{}
		}
		return a
	}}
	for what, v := range values {
		var log bytes.Buffer
		for _, h := range []slog.Handler{slog.NewTextHandler(&log, untimed), slog.NewJSONHandler(&log, untimed)} {
			slog.New(h).Info("x", "v", v, slog.Group("g", "v", v))
		}
		all["the log of "+what] = log.String()
	}
	return all
}
