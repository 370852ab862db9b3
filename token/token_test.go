package token_test

import (
	"bytes"
	"errors"
	"fmt"
	"log/slog"
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
	assert.True(t, token.Token{}.IsZero())
	assert.Empty(t, token.Token{}.Client())
	assert.False(t, tok.Equal(token.Token{}))
}
