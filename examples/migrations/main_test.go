package main

import (
	"context"
	"database/sql"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/synctest"

	"github.com/pressly/goose/v3"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/fairlock/fairlock-go/fairlock"
	"github.com/fairlock/fairlock-go/fairlocktest"
	"github.com/fairlock/fairlock-go/internal/tools/redistest"
)

func balance(t *testing.T, path string) (n int) {
	t.Helper()
	db, err := open(path)
	require.NoError(t, err)
	defer func() { require.NoError(t, db.Close()) }()
	require.NoError(t, db.QueryRowContext(t.Context(), `SELECT balance FROM account WHERE name = 'ann'`).Scan(&n))
	return n
}

// Of many replicas that start at once, one migrates.
func TestRun_ManyReplicas(t *testing.T) {
	t.Parallel()
	url, path := "unix://"+redistest.Start(t).Addr(), filepath.Join(t.TempDir(), "app.db")
	const replicas = 6
	outs := make([]strings.Builder, replicas)
	var all sync.WaitGroup
	for i := range replicas {
		all.Go(func() { assert.NoError(t, run(t.Context(), url, path, &outs[i])) })
	}
	all.Wait()
	migrated, idle := 0, 0
	for i := range outs {
		migrated += strings.Count(outs[i].String(), "OK ")
		idle += strings.Count(outs[i].String(), "nothing was left to do")
	}
	assert.Equal(t, []int{3, replicas - 1}, []int{migrated, idle})
	assert.Equal(t, 200, balance(t, path))
}

// A replica that loses the lock in the midst of a migration stops, and the next one migrates.
func TestMigrate_LockIsLost(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		server, path := fairlocktest.NewServer(t), filepath.Join(t.TempDir(), "app.db")
		one, two := server.Client(fairlock.Config{}), server.Client(fairlock.Config{})
		begun := make(chan struct{})
		slow := goose.NewGoMigration(4, &goose.GoFunc{RunTx: func(ctx context.Context, tx *sql.Tx) error {
			_, err := tx.ExecContext(ctx, `UPDATE account SET balance = 0`)
			close(begun)
			<-ctx.Done()
			return err
		}}, nil)
		failed := make(chan error, 1)
		go func() {
			db, err := open(path)
			if assert.NoError(t, err) {
				_, err = migrate(t.Context(), one.Client, db, slow)
				assert.NoError(t, db.Close())
			}
			failed <- err
		}()
		<-begun
		one.Link.Cut()
		db, err := open(path)
		require.NoError(t, err)
		defer func() { require.NoError(t, db.Close()) }()
		quick := goose.NewGoMigration(4, &goose.GoFunc{RunTx: func(ctx context.Context, tx *sql.Tx) error {
			_, err := tx.ExecContext(ctx, `UPDATE account SET balance = balance + 1`)
			return err
		}}, nil)
		done, err := migrate(t.Context(), two.Client, db, quick)
		require.NoError(t, err)
		require.Len(t, done, 1)
		assert.ErrorIs(t, <-failed, fairlock.ErrLost)
		assert.Equal(t, 201, balance(t, path))
	})
}
