package token_test

import (
	"bytes"
	"errors"
	"fmt"
	"log/slog"
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
		tok, err := token.New("host-1-ab", time.Minute)
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
	tok, err := token.New("client", time.Minute)
	require.NoError(t, err)
	_, random, _ := strings.Cut(tok.Text(), "60000.")
	secret := random[4:]

	var log bytes.Buffer
	slog.New(slog.NewJSONHandler(&log, nil)).Info("x", "token", tok, "in", struct{ T token.Token }{tok})
	for _, printed := range []string{
		log.String(), tok.String(), fmt.Sprint(tok), fmt.Sprintf("%v %+v %#v %s %q", tok, tok, tok, tok, tok),
		fmt.Sprintf("%v %+v", struct{ T token.Token }{tok}, []token.Token{tok}), errors.New(tok.String()).Error(),
	} {
		assert.NotContains(t, printed, secret)
	}
	assert.Contains(t, log.String(), "client:"+random[:4]+"…", "a log line still tells the waiters apart")
	assert.Equal(t, "(no token)", token.Token{}.String())
	assert.True(t, token.Token{}.IsZero())
	assert.Empty(t, token.Token{}.Client())
	assert.False(t, tok.Equal(token.Token{}))
}

func TestTTL_IsRoundedUpAndBounded(t *testing.T) {
	for ttl, want := range map[time.Duration]time.Duration{
		token.MinTTL: token.MinTTL, token.MaxTTL: token.MaxTTL, time.Second + 1: time.Second + time.Millisecond,
	} {
		tok, err := token.New("c", ttl)
		require.NoError(t, err)
		assert.Equal(t, want, tok.TTL())
	}
	for _, ttl := range []time.Duration{0, -time.Second, token.MinTTL - 1, token.MaxTTL + 1} {
		_, err := token.New("c", ttl)
		require.ErrorIs(t, err, token.ErrMalformed, "%v", ttl)
	}
	assert.Zero(t, token.Token{}.TTL())
}

func TestParse_AnotherLayout(t *testing.T) {
	_, err := token.Parse("web-3:2.anything")
	var other *token.LayoutError
	require.ErrorAs(t, err, &other)
	assert.Equal(t, "2", other.Layout)
	assert.EqualError(t, err, `token has layout "2", this version has layout 1: use one version, or another namespace`)
}
