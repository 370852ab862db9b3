package token_test

import (
	"bytes"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/fairlock/fairlock-go/token"
)

func TestNewPutsTheClientInFrontAnd128RandomBitsBehind(t *testing.T) {
	const n = 4096
	seen := map[token.Token]bool{}
	ones := make([]int, 128)
	for range n {
		tok, err := token.New("host-1-ab")
		require.NoError(t, err)
		require.Equal(t, "host-1-ab", tok.Client())
		require.False(t, seen[tok], "a token came twice")
		seen[tok] = true
		for i, b := range token.RandomBytes(tok) {
			for bit := range 8 {
				ones[i*8+bit] += int(b >> bit & 1)
			}
		}
	}
	for bit, k := range ones { // 8 standard deviations: a fixed bit fails, chance does not
		assert.InDelta(t, n/2, k, 8*32, "bit %d is not random", bit)
	}
}

func TestParseReadsWhatTextGave(t *testing.T) {
	for _, client := range []string{"a", "web-7d9f-42-x1", "with:colons:", strings.Repeat("c", token.MaxClient)} {
		tok, err := token.New(client)
		require.NoError(t, err)
		back, err := token.Parse(tok.Text())
		require.NoError(t, err)
		assert.Equal(t, tok, back)
		assert.True(t, tok.Equal(back))
		assert.Equal(t, client, back.Client())
	}
}

func TestParseRejectsAllElse(t *testing.T) {
	tok, err := token.New("client")
	require.NoError(t, err)
	whole := tok.Text()
	for _, bad := range []string{
		"", ":", "client", "client:", whole[1:][5:], whole[:len(whole)-1], whole + "A", " " + whole, whole + "\n",
		strings.Replace(whole, ":", ";", 1), whole[:7] + "=" + whole[8:], "cl ient:" + whole[7:], "cl\x00ient:" + whole[7:],
		"clïent:" + whole[7:], strings.Repeat("c", token.MaxClient+1) + ":" + whole[7:], "nobody:resting",
		whole[:len(whole)-1] + "_", // bits that no encoder sets
	} {
		_, err := token.Parse(bad)
		require.ErrorIs(t, err, token.ErrMalformed, "%q", bad)
		assert.NotContains(t, err.Error(), whole[7:], "an error must not print the secret")
	}
}

func TestNewRejectsAClientThatCannotBeParsedBack(t *testing.T) {
	for _, bad := range []string{"", "a b", "a\n", "ü", strings.Repeat("c", token.MaxClient+1)} {
		_, err := token.New(bad)
		require.ErrorIs(t, err, token.ErrMalformed, "%q", bad)
	}
}

func TestATokenPrintsItselfRedacted(t *testing.T) {
	tok, err := token.New("client")
	require.NoError(t, err)
	secret := tok.Text()[len("client:")+4:]

	var log bytes.Buffer
	slog.New(slog.NewJSONHandler(&log, nil)).Info("x", "token", tok, "in", struct{ T token.Token }{tok})
	for _, printed := range []string{
		log.String(), tok.String(), fmt.Sprint(tok), fmt.Sprintf("%v %+v %#v %s %q", tok, tok, tok, tok, tok),
		fmt.Sprintf("%v %+v", struct{ T token.Token }{tok}, []token.Token{tok}), errors.New(tok.String()).Error(),
	} {
		assert.NotContains(t, printed, secret)
	}
	assert.Contains(t, log.String(), "client:"+tok.Text()[7:11]+"…", "a log line still tells the waiters apart")
	assert.Equal(t, "(no token)", token.Token{}.String())
}

func TestEqualComparesTheWholeToken(t *testing.T) {
	a, err := token.New("client")
	require.NoError(t, err)
	b, err := token.New("client")
	require.NoError(t, err)
	same, err := token.Parse(a.Text())
	require.NoError(t, err)
	assert.True(t, a.Equal(same))
	assert.False(t, a.Equal(b))
	assert.False(t, a.Equal(token.Token{}))
	assert.True(t, token.Token{}.IsZero())
	assert.Empty(t, token.Token{}.Client())
}
