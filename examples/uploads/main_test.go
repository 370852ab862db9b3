package main

import (
	"context"
	"errors"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"github.com/tus/tusd/v2/pkg/filestore"
	"github.com/tus/tusd/v2/pkg/handler"

	"github.com/fairlock/fairlock-go/admin"
	"github.com/fairlock/fairlock-go/fairlock"
	"github.com/fairlock/fairlock-go/fairlocktest"
	"github.com/fairlock/fairlock-go/internal/tools/redistest"
)

const (
	first = "the first half, "
	rest  = "and the second"
)

// replicas starts two replicas that share a folder. Each has its Redis at a path of its own.
func replicas(t *testing.T, redisAt ...string) (urls []string, folder string) {
	t.Helper()
	folder = t.TempDir()
	for _, at := range redisAt {
		listener, err := net.Listen("tcp", "127.0.0.1:0")
		require.NoError(t, err)
		ctx, stop := context.WithCancel(context.Background())
		ended := make(chan error, 1)
		go func() { ended <- run(ctx, "unix://"+at, listener, folder) }()
		t.Cleanup(func() {
			stop()
			assert.NoError(t, <-ended)
		})
		urls = append(urls, "http://"+listener.Addr().String()+"/files/")
	}
	return urls, folder
}

type answer struct {
	status int
	header http.Header
	body   string
}

// request sends a request of the tus protocol and returns its answer.
func request(t *testing.T, method, url string, header map[string]string, body io.Reader) answer {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), method, url, body)
	if !assert.NoError(t, err) {
		return answer{}
	}
	req.Header.Set("Tus-Resumable", "1.0.0")
	for key, value := range header {
		req.Header.Set(key, value)
	}
	resp, err := http.DefaultClient.Do(req)
	if !assert.NoError(t, err) {
		return answer{}
	}
	text, err := io.ReadAll(resp.Body)
	assert.NoError(t, errors.Join(err, resp.Body.Close()))
	return answer{resp.StatusCode, resp.Header, string(text)}
}

// create begins an upload at a replica and returns its id.
func create(t *testing.T, url string) (id string) {
	t.Helper()
	created := request(t, http.MethodPost, url, map[string]string{"Upload-Length": strconv.Itoa(len(first + rest))}, nil)
	require.Equal(t, http.StatusCreated, created.status, created.body)
	return path.Base(created.header.Get("Location"))
}

// patch sends a part of an upload.
func patch(t *testing.T, url string, offset int, body io.Reader) answer {
	t.Helper()
	return request(t, http.MethodPatch, url, map[string]string{
		"Upload-Offset": strconv.Itoa(offset), "Content-Type": "application/offset+octet-stream",
	}, body)
}

// half sends the first half of an upload, and then nothing: the connection stays open, as one does of which only the
// client knows that it is broken.
func half(t *testing.T, url string) <-chan answer {
	t.Helper()
	silent, unused := io.Pipe()
	t.Cleanup(func() { _ = unused.Close() })
	answered := make(chan answer, 1)
	go func() { answered <- patch(t, url, 0, io.MultiReader(strings.NewReader(first), silent)) }()
	return answered
}

// stored waits until a file has the first half of the upload.
func stored(t *testing.T, file string) {
	t.Helper()
	require.Eventually(t, func() bool {
		text, err := os.ReadFile(file)
		return err == nil && string(text) == first
	}, 10*time.Second, time.Millisecond)
}

// resume goes on with an upload, as a client does: it asks for the offset, and sends what is missing.
func resume(t *testing.T, url, file string) {
	t.Helper()
	at := request(t, http.MethodHead, url, nil, nil)
	require.Equal(t, http.StatusOK, at.status)
	require.Equal(t, strconv.Itoa(len(first)), at.header.Get("Upload-Offset"))
	done := patch(t, url, len(first), strings.NewReader(rest))
	require.Equal(t, http.StatusNoContent, done.status, done.body)
	text, err := os.ReadFile(file)
	require.NoError(t, err)
	require.Equal(t, first+rest, string(text))
}

// A client whose connection is dead goes on at another replica within two seconds, although the first one does not know
// that the connection is dead.
func TestRun_GoesOnAtAnotherReplica(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	urls, folder := replicas(t, server.Addr(), server.Addr())
	id := create(t, urls[0])
	dead := half(t, urls[0]+id)
	stored(t, filepath.Join(folder, id))

	began := time.Now()
	resume(t, urls[1]+id, filepath.Join(folder, id))
	assert.Less(t, time.Since(began), 2*time.Second)
	assert.Contains(t, (<-dead).body, "ERR_UPLOAD_INTERRUPTED")
}

// A replica that cannot reach Redis any more ends the request before another replica can be granted the lock.
func TestRun_LeaseLost(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	link := redistest.NewLink(t, server)
	urls, folder := replicas(t, link.Addr(), server.Addr())
	id := create(t, urls[0])
	interrupted := half(t, urls[0]+id)
	stored(t, filepath.Join(folder, id))

	link.Cut()
	assert.Contains(t, (<-interrupted).body, "ERR_UPLOAD_INTERRUPTED")
	resume(t, urls[1]+id, filepath.Join(folder, id))
	link.Mend() // for the end of the first replica
}

// A replica that is stopped ends its requests, and the client goes on at another one.
func TestRun_Stopped(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	urls, folder := replicas(t, server.Addr())
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- run(ctx, "unix://"+server.Addr(), listener, folder) }()
	id := create(t, urls[0])
	interrupted := half(t, "http://"+listener.Addr().String()+"/files/"+id)
	stored(t, filepath.Join(folder, id))

	stop()
	assert.Contains(t, (<-interrupted).body, "ERR_SERVER_SHUTDOWN")
	require.NoError(t, <-ended)
	resume(t, urls[0]+id, filepath.Join(folder, id))
}

// slow is a store that needs some time to open an upload.
type slow struct{ filestore.FileStore }

func (s slow) UseIn(composer *handler.StoreComposer) {
	s.FileStore.UseIn(composer)
	composer.UseCore(s)
}

func (s slow) GetUpload(ctx context.Context, id string) (handler.Upload, error) {
	time.Sleep(settle / 4)
	upload, err := s.FileStore.GetUpload(ctx, id)
	return slowUpload{upload}, err
}

type slowUpload struct{ handler.Upload }

func (u slowUpload) WriteChunk(ctx context.Context, offset int64, src io.Reader) (int64, error) {
	// tusd has a data race between setting the body and being told to stop. It logs that it was told, so a line in the
	// same log puts the two in an order.
	log.Printf("writes from %d on", offset)
	return u.Upload.WriteChunk(ctx, offset, src)
}

// A request that is granted the lock when another one waits already is told to stop once tusd can obey.
func TestLocker_WaiterAtTheGrant(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	client, err := fairlock.New(server.Client(), fairlock.Config{})
	require.NoError(t, err)
	t.Cleanup(func() { client.Close() })
	folder := t.TempDir()
	uploads, err := newHandler(client, slow{filestore.New(folder)})
	require.NoError(t, err)
	replica := httptest.NewServer(uploads)
	t.Cleanup(replica.Close)
	url := replica.URL + "/files/"
	id := create(t, url)

	mutex := client.Mutex("upload:" + id)
	held, err := mutex.Lock(t.Context())
	require.NoError(t, err)
	operator, locked := admin.New(server.Client(), ""), fairlock.ID{Kind: fairlock.KindMutex, Name: "upload:" + id}
	waiting := func(n int) {
		require.Eventually(t, func() bool {
			state, err := operator.Inspect(t.Context(), locked, 1, 1)
			return err == nil && state.Waiting == n
		}, 10*time.Second, time.Millisecond)
	}
	dead := half(t, url+id)
	waiting(1)
	next := make(chan answer, 1)
	go func() { next <- request(t, http.MethodHead, url+id, nil, nil) }()
	waiting(2)
	require.NoError(t, held.Unlock(t.Context()))
	assert.Contains(t, (<-dead).body, "ERR_UPLOAD_INTERRUPTED")
	assert.Equal(t, http.StatusOK, (<-next).status)
	resume(t, url+id, filepath.Join(folder, id))
}

// What tusd wants of a Locker, at exact times.
func TestLocker(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		server := fairlocktest.NewServer(t)
		one := server.Client(fairlock.Config{TTL: time.Minute})
		two := server.Client(fairlock.Config{TTL: time.Minute})
		held := server.Mutex("upload:id")
		take := func(client *fairlocktest.Client, patience time.Duration) (handler.Lock, <-chan struct{}, error) {
			lock, err := Locker{client.Client}.NewLock("id")
			require.NoError(t, err)
			ctx, cancel := context.WithTimeout(t.Context(), patience)
			defer cancel() // as tusd does
			told := make(chan struct{})
			return lock, told, lock.Lock(ctx, func() { close(told) })
		}

		lock, told, err := take(one, time.Second)
		require.NoError(t, err)
		time.Sleep(time.Hour)
		open := func(c <-chan struct{}) bool {
			synctest.Wait()
			select {
			case <-c:
				return false
			default:
				return true
			}
		}
		assert.True(t, open(told), "nobody waits")

		began := time.Now()
		_, _, err = take(two, time.Second)
		require.ErrorIs(t, err, handler.ErrLockTimeout)
		assert.Equal(t, time.Second, time.Since(began))
		assert.False(t, open(told), "somebody waits")
		held.AssertHeldBy("client-1")
		require.NoError(t, lock.Unlock())
		held.AssertFree()

		lock, told, err = take(one, time.Second)
		require.NoError(t, err)
		require.NoError(t, lock.Unlock())
		time.Sleep(time.Hour)
		assert.True(t, open(told), "its request has ended")

		_, told, err = take(one, time.Second)
		require.NoError(t, err)
		one.Link.Cut()
		<-told
		held.AssertHeldBy("client-1") // nobody else can be granted the lock before
		began = time.Now()
		_, _, err = take(one, time.Minute)
		require.ErrorIs(t, err, handler.ErrLockTimeout)
		assert.GreaterOrEqual(t, time.Since(began), time.Minute, "it waits for Redis, too")

		two.Close()
		_, _, err = take(two, time.Second)
		require.ErrorIs(t, err, handler.ErrServerShutdown)
	})
}
