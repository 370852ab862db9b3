package main

import (
	"context"
	"database/sql"
	"errors"

	_ "modernc.org/sqlite" // the driver "sqlite", in pure Go
)

var (
	errNoAccount = errors.New("there is no such account")
	errLate      = errors.New("too late: a later holder of the lock is at the account, or has been")
	errTooLow    = errors.New("the balance is too low")
	errOtherKey  = errors.New("the key belongs to a payment of another amount")
)

// The highest fence that was seen stands in the row that it protects. A payment is stored under the key that the client has
// sent with it, so that it is not made twice.
const schema = `
CREATE TABLE IF NOT EXISTS account (name TEXT PRIMARY KEY, balance INTEGER NOT NULL, fence INTEGER NOT NULL);
CREATE TABLE IF NOT EXISTS payment (
	account TEXT NOT NULL, key TEXT NOT NULL, amount INTEGER NOT NULL, PRIMARY KEY (account, key));
INSERT OR IGNORE INTO account VALUES ('ann', 100, 0), ('bob', 100, 0);`

// ledger is the database.
type ledger struct{ *sql.DB }

func openLedger(ctx context.Context, path string) (*ledger, error) {
	db, err := sql.Open("sqlite", "file:"+path+"?_pragma=busy_timeout(5000)&_txlock=immediate")
	if err != nil {
		return nil, err
	}
	if _, err := db.ExecContext(ctx, schema); err != nil {
		return nil, errors.Join(err, db.Close())
	}
	return &ledger{db}, nil
}

// exists returns errNoAccount if there is no such account. It needs no lock.
func (l *ledger) exists(ctx context.Context, account string) error {
	var one int
	err := l.QueryRowContext(ctx, `SELECT 1 FROM account WHERE name = ?`, account).Scan(&one)
	if errors.Is(err, sql.ErrNoRows) {
		return errNoAccount
	}
	return err
}

// read returns the balance, and whether the payment is made already. Otherwise it may return errTooLow or errOtherKey.
// It shows the fence, so that what an earlier holder of the lock has read and not yet written comes too late from now on.
func (l *ledger) read(ctx context.Context, fence uint64, p payment) (balance int, paid bool, err error) {
	err = l.QueryRowContext(ctx, `UPDATE account SET fence = ?1 WHERE name = ?2 AND fence <= ?1 RETURNING balance`,
		fence, p.account).Scan(&balance)
	if errors.Is(err, sql.ErrNoRows) {
		return 0, false, errLate
	}
	if err != nil {
		return 0, false, err
	}
	var amount int
	err = l.QueryRowContext(ctx, `SELECT amount FROM payment WHERE account = ? AND key = ?`, p.account, p.key).Scan(&amount)
	switch {
	case err == nil && amount != p.amount:
		return 0, false, errOtherKey
	case err == nil:
		return balance, true, nil
	case !errors.Is(err, sql.ErrNoRows):
		return 0, false, err
	case balance < p.amount:
		return 0, false, errTooLow
	}
	return balance, false, nil
}

// write writes the payment and the new balance, unless a later holder of the lock has come: then it is errLate.
func (l *ledger) write(ctx context.Context, fence uint64, p payment, balance int) error {
	tx, err := l.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer tx.Rollback() //nolint:errcheck // nothing is left to roll back after Commit
	// One statement looks at the fence and writes. A SELECT before it would leave a gap between the two.
	r, err := tx.ExecContext(ctx, `UPDATE account SET balance = ?1, fence = ?2 WHERE name = ?3 AND fence <= ?2`,
		balance, fence, p.account)
	if err != nil {
		return err
	}
	if n, err := r.RowsAffected(); err != nil || n == 0 {
		return errors.Join(err, errLate)
	}
	if _, err := tx.ExecContext(ctx, `INSERT INTO payment VALUES (?, ?, ?)`, p.account, p.key, p.amount); err != nil {
		return err
	}
	return tx.Commit()
}
