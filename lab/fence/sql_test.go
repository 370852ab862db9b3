package fence_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/fairlock/fairlock-go/fairlock"
	"github.com/fairlock/fairlock-go/fence"
)

const resource = "account:42"

// add returns what a holder does in its transaction: it reads the counter, and writes it as this fence.
func add(by int64) func(*sql.Tx) error {
	return func(tx *sql.Tx) error {
		n, _, err := counter(tx)
		if err != nil {
			return err
		}
		return write(tx, n+1, by)
	}
}

func write(tx *sql.Tx, n, by int64) error {
	// each database has its own placeholders
	_, err := tx.Exec(fmt.Sprintf(`UPDATE counter SET n = %d, written_by = %d`, n, by))
	return err
}

func (b *base) has(t *testing.T, n, by int64) {
	t.Helper()
	gotN, gotBy, err := counter(b)
	require.NoError(t, err)
	assert.Equal(t, []int64{n, by}, []int64{gotN, gotBy})
}

// persist does it again for as long as the database asks for that, as a caller should.
func (b *base) persist(ctx context.Context, number uint64, f func(*sql.Tx) error) error {
	for {
		if err := b.Do(ctx, b.DB, resource, number, f); err == nil || !retryable(err) {
			return err
		}
	}
}

func (b *base) begin(t *testing.T) *sql.Tx {
	t.Helper()
	tx, err := b.BeginTx(t.Context(), nil)
	require.NoError(t, err)
	t.Cleanup(func() { _ = tx.Rollback() })
	return tx
}

// A lower fence is refused, an equal one passes, and whatever is refused writes nothing.
//
//fairlock:promise The fence at a database: a lower fence is refused on PostgreSQL, MariaDB and SQLite, in each isolation level; an equal one passes
func TestDo_Rules(t *testing.T) {
	t.Parallel()
	bases(t, func(t *testing.T, b *base) {
		ctx := t.Context()
		for _, number := range []uint64{5, 5, 7} {
			require.NoError(t, b.Do(ctx, b.DB, resource, number, add(int64(number))))
		}
		b.has(t, 3, 7)
		called := func(*sql.Tx) error { t.Error("f was called"); return nil }
		require.ErrorIs(t, b.Do(ctx, b.DB, resource, 6, called), fence.ErrStale)
		for _, number := range []uint64{0, 1 << 53, 1<<64 - 1} {
			require.ErrorIs(t, b.Do(ctx, b.DB, resource, number, called), fairlock.ErrInvalid)
		}
		for _, name := range []string{"", string(make([]byte, 1025))} {
			require.ErrorIs(t, b.Do(ctx, b.DB, name, 7, called), fairlock.ErrInvalid)
		}
		require.ErrorIs(t, fence.SQL{}.Do(ctx, b.DB, resource, 7, called), fairlock.ErrInvalid)
		b.has(t, 3, 7)
		for _, name := range []string{"account:43", "ACCOUNT:42", "account:42 ", "äccount:42"} {
			require.NoError(t, b.Do(ctx, b.DB, name, 1, add(1)), "another resource: %q", name)
		}
		b.has(t, 7, 1)
		conn, err := b.Conn(ctx)
		require.NoError(t, err)
		require.NoError(t, b.Do(ctx, conn, resource, 1<<53-1, add(1)))
		require.NoError(t, conn.Close())
		b.has(t, 8, 1)
	})
}

// A fence whose transaction is rolled back was never shown.
func TestDo_RollsBack(t *testing.T) {
	t.Parallel()
	bases(t, func(t *testing.T, b *base) {
		own := errors.New("own")
		err := b.Do(t.Context(), b.DB, resource, 9, func(tx *sql.Tx) error { return errors.Join(add(9)(tx), own) })
		require.ErrorIs(t, err, own)
		require.Panics(t, func() {
			_ = b.Do(t.Context(), b.DB, resource, 9, func(tx *sql.Tx) error { _ = add(9)(tx); panic("own") })
		})
		ctx, cancel := context.WithCancel(t.Context())
		err = b.Do(ctx, b.DB, resource, 9, func(tx *sql.Tx) error { defer cancel(); return add(9)(tx) })
		require.Error(t, err, "the lease has ended before the commit")
		b.has(t, 0, 0)
		require.NoError(t, b.Do(t.Context(), b.DB, resource, 8, add(8)))
		b.has(t, 1, 8)
	})
}

// A transaction that began first, and has a snapshot of that time, shows its fence after a later holder has committed.
//
//fairlock:promise The fence at a database
func TestRaise_StaleTransactionBeganEarlier(t *testing.T) {
	t.Parallel()
	bases(t, func(t *testing.T, b *base) {
		for _, reads := range []bool{false, true} {
			number := uint64(20)
			if reads {
				number = 40
			}
			// It has written before: what its snapshot has is its own fence.
			require.NoError(t, b.Do(t.Context(), b.DB, resource, number-10, add(1)))
			b.run(t, `UPDATE counter SET n = 0`)
			stale := b.begin(t)
			if reads { // the mistake: before it shows the fence
				_, _, err := counter(stale)
				require.NoError(t, err)
			}
			newer := make(chan error, 1)
			go func() { newer <- b.persist(context.Background(), number, add(int64(number))) }()
			// A reader can be in the way of the newer one: then that commits when the reader is gone.
			overtaken := b.blocked(t, newer)
			err := b.Raise(t.Context(), stale, resource, number-10)
			if overtaken {
				require.Error(t, err)
				require.True(t, errors.Is(err, fence.ErrStale) || retryable(err), "%v", err)
				require.ErrorIs(t, write(stale, 99, 99), sql.ErrTxDone, "a caller that overlooks the error")
				require.Error(t, stale.Commit())
			} else {
				_ = stale.Rollback()
				require.NoError(t, <-newer)
			}
			require.ErrorIs(t, b.Do(t.Context(), b.DB, resource, number-10, add(99)), fence.ErrStale, "again, as 40001 asks for")
			b.has(t, 1, int64(number))
		}
	})
}

// blocked returns true when the newer holder has committed, and false if it waits for a lock.
func (b *base) blocked(t *testing.T, newer <-chan error) (committed bool) {
	t.Helper()
	limit := 10 * time.Second
	if b.waiting == "" { // SQLite tries again and again, and does not show it
		limit = time.Second
	}
	for until := time.Now().Add(limit); time.Now().Before(until) && !b.waits(t); time.Sleep(time.Millisecond) { // no event
		select {
		case err := <-newer:
			require.NoError(t, err)
			return true
		default:
		}
	}
	return false
}

// waits says whether a transaction waits for a lock.
func (b *base) waits(t *testing.T) bool {
	t.Helper()
	if b.waiting == "" {
		return false
	}
	var n int
	require.NoError(t, b.QueryRow(b.waiting).Scan(&n))
	return n > 0
}

// Of two holders, the second to show its fence waits for the transaction of the first. A newer one then reads what the
// older one wrote. An older one is stale, unless the newer one has rolled back.
func TestDo_Waits(t *testing.T) {
	t.Parallel()
	bases(t, func(t *testing.T, b *base) {
		for _, c := range []struct {
			known         bool // is there a row of the resource yet?
			first, second int64
			commits       bool
			want          error
			n, by         int64
		}{
			{false, 10, 11, true, nil, 2, 11},
			{true, 10, 11, true, nil, 2, 11},
			{false, 11, 10, true, fence.ErrStale, 1, 11},
			{false, 11, 10, false, nil, 1, 10},
		} {
			b.run(t, `DELETE FROM fairlock_fences`)
			b.run(t, `UPDATE counter SET n = 0`)
			if c.known {
				require.NoError(t, b.Do(t.Context(), b.DB, resource, 1, func(*sql.Tx) error { return nil }))
			}
			first := b.begin(t)
			require.NoError(t, b.Raise(t.Context(), first, resource, uint64(c.first)))
			n, _, err := counter(first)
			require.NoError(t, err)
			second := make(chan error, 1)
			go func() { second <- b.persist(context.Background(), uint64(c.second), add(c.second)) }()
			if b.waiting != "" {
				require.Eventually(t, func() bool { return b.waits(t) }, time.Minute, time.Millisecond)
			}
			require.Empty(t, second)
			require.NoError(t, write(first, n+1, c.first))
			if c.commits {
				require.NoError(t, first.Commit())
			} else {
				require.NoError(t, first.Rollback())
			}
			require.ErrorIs(t, <-second, c.want)
			b.has(t, c.n, c.by)
		}
	})
}

// Many holders work at once, and each is paused at random. No write of a lower fence follows one of a higher fence, and
// no write is lost.
//
//fairlock:promise The fence at a database
func TestDo_Concurrent(t *testing.T) {
	t.Parallel()
	bases(t, func(t *testing.T, b *base) {
		const holders, each = 6, 20
		var last, done, stale atomic.Int64
		var all sync.WaitGroup
		for range holders {
			all.Go(func() {
				for range each {
					number := last.Add(1)
					pause()
					err := b.persist(t.Context(), uint64(number), func(tx *sql.Tx) error {
						n, by, err := counter(tx)
						if err != nil {
							return err
						}
						assert.LessOrEqual(t, by, number, "an earlier holder writes after a later one")
						pause()
						return write(tx, n+1, number)
					})
					if errors.Is(err, fence.ErrStale) {
						stale.Add(1)
					} else if assert.NoError(t, err) {
						done.Add(1)
					}
				}
			})
		}
		all.Wait()
		n, _, err := counter(b)
		require.NoError(t, err)
		assert.Equal(t, done.Load(), n, "an acknowledged update is lost")
		assert.EqualValues(t, holders*each, done.Load()+stale.Load())
		t.Logf("%d updates, %d refused", done.Load(), stale.Load())
	})
}

func pause() {
	if rand.IntN(2) == 0 {
		time.Sleep(time.Duration(rand.IntN(3000)) * time.Microsecond)
	}
}

// The statements of the guide are those of Schema.
func TestSchema_IsInTheGuide(t *testing.T) {
	t.Parallel()
	guide, err := os.ReadFile("../../docs/concepts.md")
	require.NoError(t, err)
	for _, d := range []fence.SQL{fence.Postgres, fence.MySQL, fence.SQLite} {
		assert.Contains(t, string(guide), "\n"+d.Schema()+"\n")
	}
}
