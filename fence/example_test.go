package fence_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"log"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"

	"github.com/fairlock/fairlock-go/fairlock"
	"github.com/fairlock/fairlock-go/fence"
)

// open returns a client of a server in memory, where a program uses its Redis. stop closes both.
func open() (rdb *redis.Client, client *fairlock.Client, stop func()) {
	server, err := miniredis.Run()
	if err != nil {
		log.Fatal(err)
	}
	rdb = redis.NewClient(&redis.Options{Addr: server.Addr()})
	client, err = fairlock.New(rdb, fairlock.Config{})
	if err != nil {
		log.Fatal(err)
	}
	return rdb, client, func() {
		client.Close()
		_ = rdb.Close()
		server.Close()
	}
}

// A holder that comes late is refused.
func ExampleRedis() {
	rdb, client, stop := open()
	defer stop()
	ctx := context.Background()
	account := client.Mutex("account:42")
	set := func(number uint64, balance int) error {
		_, err := fence.Redis(ctx, rdb, "{account:42}:fence", number, []any{"SET", "{account:42}:balance", balance})
		return err
	}

	var early uint64
	_ = account.Do(ctx, func(ctx context.Context) (err error) {
		early, err = fence.FromContext(ctx, account) // of a holder that is paused now
		return err
	})
	err := account.Do(ctx, func(ctx context.Context) error {
		number, err := fence.FromContext(ctx, account)
		if err != nil {
			return err
		}
		return set(number, 70)
	})
	fmt.Println("error:", err)
	fmt.Println("too late:", errors.Is(set(early, 100), fence.ErrStale))
	fmt.Println("balance:", rdb.Get(ctx, "{account:42}:balance").Val())
	// Output:
	// error: <nil>
	// too late: true
	// balance: 70
}

// All that is done by tx is written, or nothing is.
func ExampleSQL_Do() {
	var db *sql.DB // by a driver for PostgreSQL, such as github.com/jackc/pgx/v5/stdlib
	_, client, stop := open()
	defer stop()
	lock := client.Mutex("account:42")
	withdraw := func(ctx context.Context, amount int) error {
		return lock.Do(ctx, func(ctx context.Context) error {
			number, err := fence.FromContext(ctx, lock)
			if err != nil {
				return err
			}
			return fence.Postgres.Do(ctx, db, "account:42", number, func(tx *sql.Tx) error {
				_, err := tx.ExecContext(ctx, `UPDATE account SET balance = balance - $1 WHERE id = 42`, amount)
				return err
			})
		})
	}
	_ = withdraw // in a handler, for example
}

// The transaction is the caller's, and of another isolation level than the default.
func ExampleSQL_Raise() {
	transfer := func(ctx context.Context, db *sql.DB, number uint64, work func(*sql.Tx) error) error {
		tx, err := db.BeginTx(ctx, &sql.TxOptions{Isolation: sql.LevelSerializable})
		if err != nil {
			return err
		}
		defer tx.Rollback() //nolint:errcheck // nothing is left to roll back after Commit
		if err := fence.Postgres.Raise(ctx, tx, "account:42", number); err != nil {
			return err
		}
		if err := work(tx); err != nil { // what it reads, it reads after Raise
			return err
		}
		return tx.Commit()
	}
	_ = transfer
}
