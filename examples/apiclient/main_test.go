package main

import (
	"context"
	"errors"
	"io"
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/fairlock/fairlock-go/fairlock"
	"github.com/fairlock/fairlock-go/fairlocktest"
	"github.com/fairlock/fairlock-go/internal/tools/redistest"
)

// run reports an error if more requests were under way than the API bears.
func TestRun(t *testing.T) {
	t.Parallel()
	require.NoError(t, run(t.Context(), "unix://"+redistest.Start(t).Addr(), 3, 20))
}

type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

func TestTransport(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		server := fairlocktest.NewServer(t)
		client := server.Client(fairlock.Config{TTL: time.Second})
		broken := errors.New("no route")
		answers := map[string]func(*http.Request) (*http.Response, error){
			"http://api/fast":   func(*http.Request) (*http.Response, error) { return &http.Response{Body: http.NoBody}, nil },
			"http://api/broken": func(*http.Request) (*http.Response, error) { return nil, broken },
			"http://api/slow": func(r *http.Request) (*http.Response, error) {
				client.Link.Cut() // the lease cannot be renewed any more
				<-r.Context().Done()
				return nil, context.Cause(r.Context())
			},
		}
		transport := &Transport{client.Semaphore("fragile-api", 1),
			roundTripper(func(r *http.Request) (*http.Response, error) {
				return answers[r.URL.String()](r)
			})}
		ask := func(url string, body io.Reader) (*http.Response, error) {
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			t.Cleanup(cancel)
			req, err := http.NewRequestWithContext(ctx, http.MethodPost, url, body)
			require.NoError(t, err)
			return transport.RoundTrip(req)
		}
		permit := server.Semaphore("fragile-api", 1)

		resp, err := ask("http://api/fast", nil)
		require.NoError(t, err)
		permit.AssertHeldBy("client-1")
		question, writer := io.Pipe()
		began := time.Now()
		_, err = ask("http://api/fast", question)
		require.ErrorIs(t, err, context.DeadlineExceeded)
		assert.Equal(t, time.Minute, time.Since(began), "it waits no longer than its context")
		_, err = writer.Write([]byte("a question"))
		require.ErrorIs(t, err, io.ErrClosedPipe, "a RoundTripper closes the body, also after an error")
		require.NoError(t, resp.Body.Close())
		require.NoError(t, resp.Body.Close())
		permit.AssertFree()

		_, err = ask("http://api/broken", nil)
		require.ErrorIs(t, err, broken)
		permit.AssertFree()

		began = time.Now()
		_, err = ask("http://api/slow", nil)
		require.ErrorIs(t, err, fairlock.ErrLost)
		assert.Less(t, time.Since(began), time.Second, "before another client can get the permit")
	})
}
