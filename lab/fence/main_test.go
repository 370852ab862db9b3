// Package fence_test tests package fence with databases: PostgreSQL, MariaDB, SQLite in two journal modes.
package fence_test

import (
	"database/sql"
	"errors"
	"fmt"
	"io"
	"log"
	"math/rand/v2"
	"os"
	"strings"
	"sync"
	"testing"

	"github.com/go-sql-driver/mysql"
	"github.com/jackc/pgx/v5/pgconn"
	_ "github.com/jackc/pgx/v5/stdlib" // the driver "pgx"
	"github.com/stretchr/testify/require"
	"modernc.org/sqlite" // the driver "sqlite", in pure Go
	sqlite3 "modernc.org/sqlite/lib"

	"github.com/fairlock/fairlock-go/fence"
	"github.com/fairlock/fairlock-go/internal/tools/dbtest"
)

// The servers of all tests, or why there are none. A test that needs one fails then.
var (
	postgres, mariadb           *dbtest.Server
	postgresMissing, mariaError error
)

func TestMain(m *testing.M) {
	_ = mysql.SetLogger(log.New(io.Discard, "", 0)) // a transaction that is rolled back when its ctx ends says so
	var both sync.WaitGroup
	both.Go(func() { postgres, postgresMissing = dbtest.StartPostgres() })
	both.Go(func() { mariadb, mariaError = dbtest.StartMariaDB() })
	both.Wait()
	code := m.Run()
	for _, s := range []*dbtest.Server{postgres, mariadb} {
		if s != nil {
			s.Stop()
		}
	}
	os.Exit(code)
}

// base is an empty database with the settings of its clients.
type base struct {
	*sql.DB
	fence.SQL

	// waiting has the number of transactions that wait for a lock. SQLite has none: its clients wait and try.
	waiting string
}

// bases runs a test on each database and isolation level.
func bases(t *testing.T, test func(t *testing.T, b *base)) {
	t.Helper()
	for _, level := range []string{"read committed", "repeatable read", "serializable"} {
		t.Run("PostgreSQL/"+level, func(t *testing.T) {
			t.Parallel()
			require.NoError(t, postgresMissing)
			name := create(t, "pgx", postgres.DSN)
			b := &base{SQL: fence.Postgres,
				waiting: `SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'`}
			dsn := strings.Replace(postgres.DSN, "dbname=postgres", "dbname="+name, 1)
			b.open(t, "pgx", dsn+" options='-c default_transaction_isolation="+strings.ReplaceAll(level, " ", `\\ `)+"'")
			test(t, b)
		})
		t.Run("MariaDB/"+level, func(t *testing.T) {
			t.Parallel()
			require.NoError(t, mariaError)
			name := create(t, "mysql", mariadb.DSN)
			b := &base{SQL: fence.MySQL,
				// INNODB_TRX would say so, but is not refreshed while it is read every few ms.
				waiting: `SELECT count(*) FROM information_schema.processlist
					WHERE db = database() AND command <> 'Sleep' AND id <> connection_id() AND time_ms > 200`}
			b.open(t, "mysql", strings.TrimSuffix(mariadb.DSN, "test")+name+"?tx_isolation='"+
				strings.ReplaceAll(level, " ", "-")+"'")
			test(t, b)
		})
	}
	for _, journal := range []string{"wal", "delete"} {
		t.Run("SQLite/"+journal, func(t *testing.T) {
			t.Parallel()
			b := &base{SQL: fence.SQLite}
			b.open(t, "sqlite", "file:"+t.TempDir()+"/db?_pragma=busy_timeout(60000)&_pragma=journal_mode("+journal+
				")&_pragma=synchronous(off)")
			test(t, b)
		})
	}
}

// create makes a database, and returns its name.
func create(t *testing.T, driver, dsn string) (name string) {
	t.Helper()
	admin, err := sql.Open(driver, dsn)
	require.NoError(t, err)
	defer func() { require.NoError(t, admin.Close()) }()
	creates.Lock()
	defer creates.Unlock()
	name = fmt.Sprintf("test%x", rand.Uint64())
	_, err = admin.ExecContext(t.Context(), "CREATE DATABASE "+name)
	require.NoError(t, err)
	return name
}

var creates sync.Mutex // PostgreSQL copies one at a time

// open connects, and makes the tables: counter has a number, and the fence of who wrote it.
func (b *base) open(t *testing.T, driver, dsn string) {
	t.Helper()
	var err error
	b.DB, err = sql.Open(driver, dsn)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, b.Close()) })
	b.run(t, `CREATE TABLE counter (n BIGINT NOT NULL, written_by BIGINT NOT NULL)`)
	b.run(t, `INSERT INTO counter VALUES (0, 0)`)
	b.run(t, b.Schema())
	b.run(t, b.Schema()) // a migration may be run again
}

func (b *base) run(t *testing.T, query string) {
	t.Helper()
	_, err := b.ExecContext(t.Context(), query)
	require.NoError(t, err)
}

// queryer is a *sql.DB or a *sql.Tx.
type queryer interface {
	QueryRow(query string, args ...any) *sql.Row
}

// counter reads the counter, and by whom it was written.
func counter(q queryer) (n, by int64, err error) {
	err = q.QueryRow(`SELECT n, written_by FROM counter`).Scan(&n, &by)
	return n, by, err
}

// retryable says that the caller may try again: PostgreSQL's 40001, or a deadlock; MariaDB's 1213, or 1020 (the row has
// changed since the snapshot); SQLite is busy.
func retryable(err error) bool {
	var pg *pgconn.PgError
	var maria *mysql.MySQLError
	var lite *sqlite.Error
	switch {
	case errors.As(err, &pg):
		return pg.Code == "40001" || pg.Code == "40P01"
	case errors.As(err, &maria):
		return maria.Number == 1213 || maria.Number == 1020
	default:
		return errors.As(err, &lite) && lite.Code()&0xff == sqlite3.SQLITE_BUSY
	}
}
