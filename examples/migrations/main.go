// Command migrations brings a database up to date by goose, at the start of a service that has several replicas. They
// all try, and the lock lets them do so one after the other, in the order in which they came. The first one migrates,
// the others find that nothing is left to do. If the first one crashes, the next one goes on after a TTL.
//
//	go run ./migrations -db app.db; beside it, in another terminal, again
package main

import (
	"cmp"
	"context"
	"database/sql"
	"embed"
	"errors"
	"flag"
	"fmt"
	"io"
	"io/fs"
	"log"
	"os"
	"os/signal"

	"github.com/pressly/goose/v3"
	"github.com/redis/go-redis/v9"
	_ "modernc.org/sqlite" // the driver "sqlite", in pure Go

	"github.com/fairlock/fairlock-go/fairlock"
)

//go:embed sql/*.sql
var files embed.FS

func main() {
	path := flag.String("db", "app.db", "the `file` of the database")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	err := run(ctx, cmp.Or(os.Getenv("FAIRLOCK_REDIS"), "redis://localhost:6379"), *path, os.Stdout)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "migrations:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, url, path string, out io.Writer) error {
	options, err := redis.ParseURL(url)
	if err != nil {
		return err
	}
	rdb := redis.NewClient(options)
	defer rdb.Close()
	client, err := fairlock.New(rdb, fairlock.Config{})
	if err != nil {
		return err
	}
	defer client.Close() // before rdb: the last deferred runs first
	db, err := open(path)
	if err != nil {
		return err
	}
	defer func() { _ = db.Close() }()
	done, err := migrate(ctx, client, db)
	says := log.New(out, "", 0)
	for _, m := range done {
		says.Println(m)
	}
	if err == nil && len(done) == 0 {
		says.Println("nothing was left to do")
	}
	return err
}

func open(path string) (*sql.DB, error) {
	return sql.Open("sqlite", "file:"+path+"?_pragma=busy_timeout(5000)")
}

// migrate applies what is missing, and returns it. If the lock is lost, it stops, and the error is an ErrLost. What it
// had begun is rolled back then, because goose runs each migration in a transaction.
func migrate(ctx context.Context, client *fairlock.Client, db *sql.DB,
	more ...*goose.Migration) ([]*goose.MigrationResult, error) {
	sources, err := fs.Sub(files, "sql")
	if err != nil {
		return nil, err
	}
	ctx, lost := context.WithCancelCause(ctx)
	defer lost(nil)
	p, err := goose.NewProvider(goose.DialectSQLite3, db, sources,
		goose.WithLocker(&locker{mutex: client.Mutex("migrations"), lost: lost}), goose.WithGoMigrations(more...))
	if err != nil {
		return nil, err
	}
	done, err := p.Up(ctx)
	if cause := context.Cause(ctx); err != nil && errors.Is(cause, fairlock.ErrLost) {
		err = errors.Join(cause, err)
	}
	return done, err
}
