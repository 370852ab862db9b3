package token_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"log/slog"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/fairlock/fairlock-go/token"
)

// What New writes: the client id, a colon, and 128 bits in base64url, of which the last character has only 2.
var (
	wellFormed = regexp.MustCompile(`\A[!-~]{1,128}:[A-Za-z0-9_-]{21}[AQgw]\z`)
	goodClient = regexp.MustCompile(`\A[!-~]{1,128}\z`)
)

// secretLen is how many characters at the end of a token nobody may see.
const secretLen = 18

func FuzzParse(f *testing.F) {
	random := "x-7_AZaz09-_x-7_AZaz0w"
	for _, text := range []string{
		"a:" + random, "with:colons::" + random, strings.Repeat("c", token.MaxClient) + ":" + random, "a:" + random + "\n",
		random, ":" + random, "", ":", "client:", "nobody:resting", "c:" + strings.Repeat("A", 22), "c:" + strings.Repeat("A", 21) + "B",
		"c:" + strings.Repeat("=", 22), "c:" + strings.Repeat("A", 20) + "==", "c:" + strings.Repeat("A", 20) + "\r\n",
		"c:" + strings.Repeat("\n", 22), "ü:" + random, "a b:" + random, "a\x00:" + random,
	} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		tok, err := token.Parse(text)
		require.Equal(t, wellFormed.MatchString(text), err == nil, "%q: %v", text, err)
		if err != nil {
			require.ErrorIs(t, err, token.ErrMalformed)
			require.True(t, tok.IsZero())
			if _, secret, ok := strings.Cut(text, ":"); ok && len(secret) >= secretLen {
				require.NotContains(t, err.Error(), secret, "an error must not print the secret")
			}
			return
		}
		require.Equal(t, text, tok.Text())
		require.Len(t, token.RandomBytes(tok), 16)
		require.True(t, strings.HasPrefix(text, tok.Client()+":"))
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
		tok, err := token.New(client)
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
		require.Equal(t, client+":"+tok.Text()[len(client)+1:][:22-secretLen]+"…", tok.String())
	})
}
