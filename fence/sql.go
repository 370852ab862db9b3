package fence

import (
	"context"
	"database/sql"
	"errors"
	"fmt"

	"github.com/fairlock/fairlock-go/fairlock"
)

// ErrStale means that a later holder of the lock has shown its fence. Nothing was written. What the caller has read may
// be old.
var ErrStale = errors.New("fence: a later holder of the lock has shown its fence")

// SQL keeps fences in the table fairlock_fences of a database. Each value is for one dialect, because a *sql.DB and a
// transaction do not say which database they belong to.
type SQL struct {
	schema string
	raise  string // changes one row, or none if a higher fence is there
	// highest reads what raise has left, and waits for nothing, since raise has locked the row. Only for databases that
	// count rows differently.
	highest string
}

// The dialects.
var (
	// Postgres is for PostgreSQL.
	Postgres = SQL{
		schema: `CREATE TABLE IF NOT EXISTS fairlock_fences (resource TEXT PRIMARY KEY, fence BIGINT NOT NULL)`,
		raise: `INSERT INTO fairlock_fences (resource, fence) VALUES ($1, $2)
			ON CONFLICT (resource) DO UPDATE SET fence = excluded.fence WHERE fairlock_fences.fence <= excluded.fence`,
	}
	// MySQL is for MySQL and MariaDB.
	MySQL = SQL{
		// A text column would hold names as equal that differ in case or in spaces at the end. InnoDB has transactions.
		schema: `CREATE TABLE IF NOT EXISTS fairlock_fences (resource VARBINARY(1024) PRIMARY KEY, ` +
			`fence BIGINT NOT NULL) ENGINE = InnoDB`,
		raise: `INSERT INTO fairlock_fences (resource, fence) VALUES (?, ?)
			ON DUPLICATE KEY UPDATE fence = GREATEST(fence, VALUES(fence))`,
		// A plain SELECT would read from the snapshot of the transaction, which may be older than the lock on the row.
		highest: `SELECT fence FROM fairlock_fences WHERE resource = ? FOR UPDATE`,
	}
	// SQLite is for SQLite 3.24 or later.
	SQLite = SQL{
		schema: `CREATE TABLE IF NOT EXISTS fairlock_fences (resource TEXT PRIMARY KEY, fence INTEGER NOT NULL)`,
		raise: `INSERT INTO fairlock_fences (resource, fence) VALUES (?1, ?2)
			ON CONFLICT (resource) DO UPDATE SET fence = excluded.fence WHERE fairlock_fences.fence <= excluded.fence`,
	}
)

// Schema returns the statement that creates the table unless it exists. It belongs into a migration: nothing here runs
// it. The table has one row for each resource, which nothing removes.
func (d SQL) Schema() string { return d.schema }

// DB is what Do begins a transaction with: a *sql.DB or a *sql.Conn.
type DB interface {
	BeginTx(ctx context.Context, options *sql.TxOptions) (*sql.Tx, error)
}

// Do runs f in a transaction that has raised the fence, and commits it. f reads what its write depends on by tx. If an
// older transaction has raised its own fence for the resource and has not ended, Do waits for that.
//
// After ErrStale, f was not called. After an error of f the transaction is rolled back, as after a panic. After an
// error of the commit it is not known whether it was written. Errors of the database are in the chain as the driver has
// returned them. After some of them, call Do again; it succeeds or returns ErrStale. On REPEATABLE READ and
// SERIALIZABLE, these are 40001 of PostgreSQL, even for the valid holder, and 1213 or 1020 of MySQL and MariaDB. SQLite
// returns SQLITE_BUSY. If there is no table fairlock_fences, f is not called.
//
// The transaction has the isolation level that is the default of db. When ctx ends, it is rolled back, unless it is
// committed already. The ctx of a lock's Do therefore ends it when the lease is lost. A ctx without the lease lets the
// write go on as long as no later holder has shown its fence.
func (d SQL) Do(ctx context.Context, db DB, resource string, fence uint64, f func(tx *sql.Tx) error) error {
	if err := d.check(resource, fence); err != nil {
		return err
	}
	tx, err := db.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer tx.Rollback() //nolint:errcheck // nothing is left to roll back after Commit
	if err := d.Raise(ctx, tx, resource, fence); err != nil {
		return err
	}
	if err := f(tx); err != nil {
		return err
	}
	return tx.Commit()
}

// Tx is a transaction, such as a *sql.Tx. Raise on a *sql.DB would not prevent later writes of an earlier holder.
type Tx interface {
	ExecContext(ctx context.Context, query string, args ...any) (sql.Result, error)
	QueryRowContext(ctx context.Context, query string, args ...any) *sql.Row
	Rollback() error
}

// Raise stores the fence for the resource, whose name has 1 to 1,024 bytes, in the caller's transaction. If a higher
// fence is stored, Raise returns ErrStale. An equal one passes, because a holder may write more than once. A fence of
// 0, or of 2^53 or more, is a fairlock.ErrInvalid.
//
// After an error the transaction is rolled back, so that a caller that overlooks the error commits nothing. After nil,
// no earlier holder commits a transaction with its fence before this one has ended. Raise must be the first statement
// of the transaction, and the caller reads what its write depends on afterwards, in the same one. If it reads before,
// the update of an earlier holder that commits in between is lost without an error. Errors of the database and waiting
// are as in Do.
func (d SQL) Raise(ctx context.Context, tx Tx, resource string, fence uint64) error {
	err := d.check(resource, fence)
	if err == nil {
		err = d.raiseIn(ctx, tx, resource, fence)
	}
	if err != nil {
		_ = tx.Rollback() // if it fails, the connection is closed, and the database rolls back
	}
	return err
}

func (d SQL) raiseIn(ctx context.Context, tx Tx, resource string, fence uint64) error {
	r, err := tx.ExecContext(ctx, d.raise, resource, int64(fence))
	if err != nil {
		return fmt.Errorf("fence: raising the fence of %.64q: %w", resource, err)
	}
	var raised bool
	if d.highest == "" {
		var rows int64
		rows, err = r.RowsAffected()
		raised = rows == 1
	} else {
		var highest uint64
		err = tx.QueryRowContext(ctx, d.highest, resource).Scan(&highest)
		raised = highest == fence
	}
	if err != nil {
		return fmt.Errorf("fence: reading the fence of %.64q: %w", resource, err)
	}
	if !raised {
		return ErrStale
	}
	return nil
}

func (d SQL) check(resource string, fence uint64) error {
	if d.raise == "" {
		return &fairlock.FieldError{Field: "SQL", Reason: "the zero value is no dialect; use Postgres, MySQL or SQLite"}
	}
	if resource == "" || len(resource) > maxResource {
		return &fairlock.FieldError{Field: "resource", Reason: fmt.Sprintf("%d bytes, must be from 1 to %d", len(resource),
			maxResource)}
	}
	return checkFence(fence)
}

const (
	maxResource = 1024
	maxFence    = 1<<53 - 1 // Lua's numbers are exact up to it
)

func checkFence(fence uint64) error {
	if fence < 1 || fence > maxFence {
		return &fairlock.FieldError{Field: "fence", Reason: fmt.Sprintf("%d, must be from 1 to 2^53-1", fence)}
	}
	return nil
}
