package token_test

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/fairlock/fairlock-go/internal/bounds"
	"github.com/fairlock/fairlock-go/internal/tokens"
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

// FuzzParse and FuzzNew have how other tokens are printed.
func TestToken_Zero(t *testing.T) {
	tok, err := token.Parse(tokens.New("client", tokens.Terms{TTL: time.Minute, Weight: 1}))
	require.NoError(t, err)
	assert.Equal(t, "(no token)", token.Token{}.String())
	assert.True(t, token.Token{}.IsZero())
	assert.Empty(t, token.Token{}.Client())
	assert.NotEqual(t, token.Token{}, tok)
}

// A token says what it was made with; a TTL is rounded up. What is out of bounds makes none.
func TestNew_Terms(t *testing.T) {
	for _, terms := range []tokens.Terms{
		{TTL: bounds.MinTTL, Weight: 1}, {TTL: bounds.MaxTTL, Weight: 1, Flags: 35},
		{TTL: time.Second + 1, Weight: 1, Permits: 1, Flags: tokens.Released},
		{TTL: time.Second, Weight: 2, Permits: 3, Flags: tokens.MinHold | tokens.Released},
		{TTL: time.Second, Weight: bounds.MaxPermits, Permits: bounds.MaxPermits}, {TTL: time.Second, Weight: 1,
			Permits: bounds.MaxPermits},
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
	for _, terms := range []tokens.Terms{
		{Weight: 1}, {TTL: -time.Second, Weight: 1}, {TTL: bounds.MinTTL - time.Millisecond,
			Weight: 1}, {TTL: bounds.MaxTTL + 1, Weight: 1},
		{TTL: time.Second}, {TTL: time.Second, Weight: 2}, {TTL: time.Second, Permits: 1}, {TTL: time.Second, Weight: -1,
			Permits: 1},
		{TTL: time.Second, Weight: 3, Permits: 2}, {TTL: time.Second, Weight: 1, Permits: -1},
		{TTL: time.Second, Weight: 1, Permits: bounds.MaxPermits + 1}, {TTL: time.Second, Weight: 1, Flags: 36},
		{TTL: time.Second, Weight: 1, Flags: -1}, {TTL: 100 * 365 * 24 * time.Hour, Weight: 1},
		{TTL: time.Second, Weight: 1, Permits: math.MaxInt}, {TTL: time.Second, Weight: math.MinInt, Permits: 1},
		{TTL: time.Second, Weight: 1, Permits: 1, Key: "a"}, {TTL: time.Second, Weight: 1, Permits: 1,
			Share: 1}, {TTL: time.Second, Weight: 1, Key: "a", Share: 1},
		{TTL: time.Second, Weight: 1, Permits: 1, Key: "a", Share: -1}, {TTL: time.Second, Weight: 1, Permits: 1, Key: "a",
			Share: bounds.MaxShare + 1},
		{TTL: time.Second, Weight: 2, Permits: 3, Key: "a", KeyLimit: 1, Share: 1}, {TTL: time.Second, Weight: 1, Permits: 1,
			Key: "a", KeyLimit: -1, Share: 1},
		{TTL: time.Second, Weight: 1, Permits: 1, Key: "a", KeyLimit: bounds.MaxPermits + 1, Share: 1}, {TTL: time.Second,
			Weight: 1, Permits: 1, KeyLimit: 1},
		{TTL: time.Second, Weight: 1, Permits: 1, Key: strings.Repeat("a", bounds.MaxKey+1), Share: 1},
		{TTL: time.Second, Weight: 1, Flags: tokens.Leader, Address: strings.Repeat("a", bounds.MaxClient+1)},
	} {
		_, err := token.Parse(tokens.New("c", terms))
		require.ErrorIs(t, err, token.ErrMalformed, "%+v", terms)
	}
	assert.Zero(t, termsOf(t, token.Token{}))
}

// termsOf returns what a token says, also by its methods.
func termsOf(t *testing.T, tok token.Token) tokens.Terms {
	t.Helper()
	terms := tok.Terms()
	require.Equal(t, tok.TTL(), terms.TTL)
	require.Equal(t, tok.Weight(), terms.Weight)
	return terms
}

func TestParse_AnotherLayout(t *testing.T) {
	_, err := token.Parse("web-3:1.anything")
	var other *token.LayoutError
	require.ErrorAs(t, err, &other)
	assert.Equal(t, "1", other.Layout)
	assert.EqualError(t, err, `token has layout "1", this version has layout 2: use one version, or another namespace`)
}

// What New writes. Of the 128 bits in base64url the last character has only 2.
var (
	wellFormed = regexp.MustCompile(`\A[!-~]{1,128}:2\.(?:(?:(` + aKey +
		`)([0-9a-z]{6})([0-9a-z]{2}))?([0-9a-z]{6})([0-9a-z]{6}))?` +
		`([0-9a-z]{7})([0-9a-z])[A-Za-z0-9_-]{21}[AQgw]\z`)
	leaders = regexp.MustCompile(`\A[!-~]{1,128}:2\.(` + aKey +
		`|)([0-9a-z]{7})([4-7cdefklmnstuv])[A-Za-z0-9_-]{21}[AQgw]\z`)
	newer      = regexp.MustCompile(`\A[!-~]{1,128}:([013-9]\d*|2\d+)\.[^:]*\z`)
	encoded    = regexp.MustCompile(`%..`)
	goodClient = regexp.MustCompile(`\A[!-~]{1,128}\z`)
)

// aKey is the text of a key: nothing is encoded that need not be.
const aKey = `(?:[!-$&-9;-~]|%(?:[01][0-9A-F]|20|25|3A|7F|[89A-F][0-9A-F]))+`

// terms reads a well-formed token by itself. ok: they are within bounds.
func terms(text string) (terms tokens.Terms, ok bool) {
	decoded := func(label string) string {
		return encoded.ReplaceAllStringFunc(label, func(code string) string {
			c, _ := strconv.ParseUint(code[1:], 16, 8)
			return string([]byte{byte(c)})
		})
	}
	within := func(ms int64) bool { return ms >= 10 && ms <= 365*24*3600*1000 }
	if parts := leaders.FindStringSubmatch(text); parts != nil {
		ms, _ := strconv.ParseInt(parts[2], 36, 64)
		flags, _ := strconv.ParseInt(parts[3], 36, 64)
		address := decoded(parts[1])
		return tokens.Terms{
			TTL: time.Duration(ms) * time.Millisecond, Weight: 1, Flags: tokens.Flags(flags), Address: address,
		}, within(ms) && len(address) <= 128
	}
	parts := wellFormed.FindStringSubmatch(text)
	if parts == nil {
		return terms, false
	}
	n := make([]int64, len(parts))
	for i, part := range parts[1:] {
		n[i], _ = strconv.ParseInt(part, 36, 64)
	}
	limit, share, weight, permits, ms := n[1], n[2], n[3], n[4], n[5]
	ok = within(ms)
	if parts[4] == "" {
		weight = 1
	} else {
		ok = ok && 1 <= weight && weight <= permits && permits <= 1<<30
	}
	key := decoded(parts[1])
	if key != "" {
		ok = ok && len(key) <= 128 && limit <= 1<<30 && (limit == 0 || weight <= limit) && 1 <= share && share <= 1000
	}
	return tokens.Terms{
		TTL: time.Duration(ms) * time.Millisecond, Weight: int(weight), Permits: int(permits), Flags: tokens.Flags(n[6]),
		Key: key, KeyLimit: int(limit), Share: int(share),
	}, ok
}

// secretLen is how many characters at the end of a token nobody may see.
const secretLen = 18

func FuzzParse(f *testing.F) {
	const random = "2.00007ps0x-7_AZaz09-_x-7_AZaz0w"
	as := strings.Repeat("A", 22)
	for _, text := range []string{
		"a:" + random, "with:colons::" + random, strings.Repeat("c", bounds.MaxClient) + ":" + random, "a:" + random + "\n",
		random, ":" + random, "", ":", "client:", "nobody:quarantined", "c:2.00007ps0" + as, "c:2.00007ps0" + as[1:] + "B",
		// 9 ms, 10 ms
		"c:2.00007ps0" + as[2:] + "==", "c:2.00007ps0" + as[2:] + "\r\n", "c:2.00000090" + as, "c:2.000000a0" + as,
		"c:2.ehjpxc00" + as, "c:2.ehjpxc10" + as, "c:2.0000-ps0" + as, "c:2.00007pSz" + as, "c:2.00007ps_" + as, "c:2." +
			as, "c:1." + as, "c:22.x",
		"c:2.00000000000100007ps0" + as, "c:2.00000100000000007ps0" + as, "c:2.00000100000100007psz" +
			as, "c:2.00000200000100007ps0" + as,
		"c:2.hra0hshra0hs00007ps0" + as, "c:2.000001hra0hs00007ps0" + as, "c:2.000001hra0ht00007ps0" +
			as, "c:2.000001zzzzzz00007ps0" + as,
		"c:2.a000004010000020000050000a00" + as, "c:2.%3A%20%25%00%FF00000001000001hra0hs00007ps0" +
			as, "c:2.%2000000001000001000001" + "00007ps0" + as,
		"c:2.a00000001000001000001" + "00007ps0" + as, "c:2.%61000000" + "01000001000001" + "00007ps0" +
			as, "c:2.%3a00000001000001000001" + "00007ps0" + as,
		"c:2.a.b000000rs000001000001" + "00007ps0" + as, "c:2.a000000rt000001000001" + "00007ps0" +
			as, "c:2.a00000000000001000001" + "00007ps0" + as,
		"c:2.a b00000001000001000001" + "00007ps0" + as, "c:2." + strings.Repeat("%00", 129) + "00000001000001000001" +
			"00007ps0" + as,
		"c:2.00000100007ps0" + as, "c:" + as, "c:2.00007ps4" + as, "c:2.10.0.0.3%3A80800007ps4" +
			as, "c:2.00000100000100007ps4" + as,
		"c:2.10.0.0.3%3a80800007ps4" + as, "c:2.a b00007ps4" + as, "c:2." + strings.Repeat("a", 129) + "00007ps5" +
			as, "c:2.%00007psC" + as, "c:2.a00007ps4" + as[1:], "ü:" + random, "a b:" + random, "a\x00:" + random,
	} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		tok, err := token.Parse(text)
		want, good := terms(text)
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
		require.True(t, strings.HasPrefix(text, tok.Client()+":2."))
		require.Equal(t, want, termsOf(t, tok))
		again, err := token.Parse(text)
		require.NoError(t, err)
		require.Equal(t, tok, again)

		twin := twinOf(t, tok)
		require.NotEqual(t, tok, twin)
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

func FuzzNew(f *testing.F) {
	for _, client := range []string{
		"a", "", " ", "a b", "a\n", "ü", ":", "a:b", "\x7f", "~", "!", "\xff", "%s", "{a}", strings.Repeat("c",
			bounds.MaxClient),
		strings.Repeat("c", bounds.MaxClient+1),
	} {
		f.Add(client, client)
	}
	f.Fuzz(func(t *testing.T, client, key string) {
		good := goodClient.MatchString(client)
		require.Equal(t, good, tokens.CheckClient(client) == nil, "%q", client)
		tok, err := token.Parse(tokens.New(client, tokens.Terms{TTL: 10 * time.Second, Weight: 3, Permits: 5}))
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
		require.Equal(t, client+":"+strings.TrimPrefix(tok.Text(), client+":2.00000300000500007ps0")[:22-secretLen]+"…",
			tok.String())

		keyed := tokens.Terms{TTL: 10 * time.Second, Weight: 3, Permits: 5, Key: key, KeyLimit: 4, Share: 2}
		tok, err = token.Parse(tokens.New(client, keyed))
		require.Equal(t, key != "" && len(key) <= bounds.MaxKey, err == nil, "%q: %v", key, err)
		if err == nil {
			require.Regexp(t, wellFormed, tok.Text())
			require.Equal(t, keyed, termsOf(t, tok))
			require.Equal(t, client, tok.Client())
		}

		leads := tokens.Terms{TTL: 10 * time.Second, Weight: 1, Flags: tokens.Leader, Address: key}
		tok, err = token.Parse(tokens.New(client, leads))
		require.Equal(t, len(key) <= bounds.MaxClient, err == nil, "%q: %v", key, err)
		if err == nil {
			require.Regexp(t, leaders, tok.Text())
			require.Equal(t, leads, termsOf(t, tok))
			require.Equal(t, client, tok.Client())
		}
	})
}
