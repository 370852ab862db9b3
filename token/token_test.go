package token_test

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/fairlock/fairlock-go/token"
)

func TestNewPutsTheClientInFrontAnd128RandomBitsBehind(t *testing.T) {
	const n = 4096
	seen := map[token.Token]bool{}
	ones := make([]int, 128)
	for range n {
		tok, err := token.New("host-1-ab", time.Minute, 1)
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

// FuzzParse and FuzzNew have how other tokens are printed.
func TestToken_Zero(t *testing.T) {
	tok, err := token.New("client", time.Minute, 1)
	require.NoError(t, err)
	assert.Equal(t, "(no token)", token.Token{}.String())
	assert.True(t, token.Token{}.IsZero())
	assert.Empty(t, token.Token{}.Client())
	assert.False(t, tok.Equal(token.Token{}))
}

func TestTTL_IsRoundedUpAndBounded(t *testing.T) {
	for ttl, want := range map[time.Duration]time.Duration{
		token.MinTTL: token.MinTTL, token.MaxTTL: token.MaxTTL, time.Second + 1: time.Second + time.Millisecond,
	} {
		tok, err := token.New("c", ttl, 1)
		require.NoError(t, err)
		assert.Equal(t, want, tok.TTL())
	}
	for _, ttl := range []time.Duration{0, -time.Second, token.MinTTL - 1, token.MaxTTL + 1} {
		_, err := token.New("c", ttl, 1)
		require.ErrorIs(t, err, token.ErrMalformed, "%v", ttl)
	}
	for _, weight := range []int{0, -1, token.MaxWeight + 1} {
		_, err := token.New("c", time.Second, weight)
		require.ErrorIs(t, err, token.ErrMalformed, "%v", weight)
	}
	assert.Zero(t, token.Token{}.TTL())
	assert.Zero(t, token.Token{}.Weight())
}

func TestParse_AnotherLayout(t *testing.T) {
	_, err := token.Parse("web-3:2.anything")
	var other *token.LayoutError
	require.ErrorAs(t, err, &other)
	assert.Equal(t, "2", other.Layout)
	assert.EqualError(t, err, `token has layout "2", this version has layout 1: use one version, or another namespace`)
}

// What New writes. Of the 128 bits in base64url the last character has only 2.
var (
	wellFormed = regexp.MustCompile(`\A[!-~]{1,128}:1\.(\d{11})\.(\d{10})\.[0-9a-f]\.[A-Za-z0-9_-]{21}[AQgw]\z`)
	newer      = regexp.MustCompile(`\A[!-~]{1,128}:(0|[02-9]\d*|1\d+)\.[^:]*\z`)
	goodClient = regexp.MustCompile(`\A[!-~]{1,128}\z`)
)

// secretLen is how many characters at the end of a token nobody may see.
const secretLen = 18

func FuzzParse(f *testing.F) {
	random := "1.00000010000.0000000001.0.x-7_AZaz09-_x-7_AZaz0w"
	as := strings.Repeat("A", 22)
	for _, text := range []string{
		"a:" + random, "with:colons::" + random, strings.Repeat("c", token.MaxClient) + ":" + random, "a:" + random + "\n",
		random, ":" + random, "", ":", "client:", "nobody:quarantined", "c:1.00000010000.0000000001.0." + as, "c:1.00000010000.0000000001.0." + as[1:] + "B",
		"c:1.00000010000.0000000001.0." + as[2:] + "==", "c:1.00000010000.0000000001.0." + as[2:] + "\r\n", "c:1.00000000009.0000000001.0." + as, "c:1.00000000010.0000000001.0." + as,
		"c:1.31536000000.0000000001.0." + as, "c:1.31536000001.0000000001.0." + as, "c:1.0000001000x.0000000001.0." + as, "c:1.-0000010000.0000000001.0." + as, "c:2." + as, "c:11.x",
		"c:1.00000010000.0000000000.0." + as, "c:1.00000010000.1073741824.0." + as, "c:1.00000010000.1073741825.0." + as,
		"c:1.00000010000.000000000x.0." + as, "c:1.00000010000.0000000001.9." + as, "c:1.00000010000.0000000001.g." + as, "c:1.00000010000.0000000001.f." + as,
		"c:" + as, "ü:" + random, "a b:" + random, "a\x00:" + random,
	} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		tok, err := token.Parse(text)
		parts := wellFormed.FindStringSubmatch(text)
		good := parts != nil && parts[1] >= "00000000010" && parts[1] <= "31536000000" && parts[2] >= "0000000001" && parts[2] <= "1073741824"
		require.Equal(t, good, err == nil, "%q: %v", text, err)
		if err != nil {
			var other *token.LayoutError
			require.Equal(t, newer.MatchString(text), errors.As(err, &other), "%q: %v", text, err)
			require.True(t, other != nil || errors.Is(err, token.ErrMalformed))
			require.True(t, tok.IsZero())
			if len(text) > 2*secretLen {
				require.NotContains(t, err.Error(), text[len(text)-secretLen:], "an error must not print the secret")
			}
			return
		}
		require.Equal(t, text, tok.Text())
		require.Len(t, randomBytes(t, tok), 16)
		require.True(t, strings.HasPrefix(text, tok.Client()+":1."))
		require.Equal(t, parts[1], fmt.Sprintf("%011d", tok.TTL().Milliseconds()))
		require.Equal(t, parts[2], fmt.Sprintf("%010d", tok.Weight()))
		again, err := token.Parse(text)
		require.NoError(t, err)
		require.True(t, tok == again && tok.Equal(again))

		twin := twinOf(t, tok)
		require.False(t, tok == twin || tok.Equal(twin))
		was := printed(t, twin)
		for how, text := range printed(t, tok) {
			require.Equal(t, was[how], text, "%s depends on the secret", how)
		}
	})
}

// twinOf returns a token that differs in the secret only, and there in every character.
func twinOf(t *testing.T, tok token.Token) token.Token {
	t.Helper()
	open, secret := tok.Text()[:len(tok.Text())-secretLen], tok.Text()[len(tok.Text())-secretLen:]
	other := strings.Map(func(r rune) rune {
		if r == 'A' {
			return 'Q'
		}
		return 'A'
	}, secret)
	twin, err := token.Parse(open + other)
	require.NoError(t, err)
	return twin
}

// printed is a token in all the ways in which it can be written down, but for Text.
func printed(t *testing.T, tok token.Token) map[string]string {
	t.Helper()
	all := map[string]string{"String": tok.String(), "GoString": tok.GoString(), "LogValue": tok.LogValue().String()}
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

func FuzzNew(f *testing.F) {
	for _, client := range []string{
		"a", "", " ", "a b", "a\n", "ü", ":", "a:b", "\x7f", "~", "!", "\xff", "%s", "{a}", strings.Repeat("c", token.MaxClient),
		strings.Repeat("c", token.MaxClient+1),
	} {
		f.Add(client)
	}
	f.Fuzz(func(t *testing.T, client string) {
		good := goodClient.MatchString(client)
		require.Equal(t, good, token.CheckClient(client) == nil, "%q", client)
		tok, err := token.New(client, 10*time.Second, 3)
		require.Equal(t, good, err == nil, "%q: %v", client, err)
		if err != nil {
			require.ErrorIs(t, err, token.ErrMalformed)
			require.True(t, tok.IsZero())
			return
		}
		require.Regexp(t, wellFormed, tok.Text())
		require.Equal(t, client, tok.Client())
		back, err := token.Parse(tok.Text())
		require.NoError(t, err)
		require.Equal(t, tok, back)
		require.Equal(t, client+":"+strings.TrimPrefix(tok.Text(), client+":1.00000010000.0000000003.0.")[:22-secretLen]+"…", tok.String())
	})
}
