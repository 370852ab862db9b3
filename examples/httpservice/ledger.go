package main

import (
	"context"
	"database/sql"
	"errors"

	_ "modernc.org/sqlite" // the driver "sqlite", in pure Go

	"github.com/fairlock/fairlock-go/fence"
)

var (
	errNoAccount = errors.New("there is no such account")
	errTooLow    = errors.New("the balance is too low")
	errOtherKey  = errors.New("the key belongs to a payment of another amount")
)

// A payment is stored under the key that the client has
// sent with it, so that it is not made twice.
const schema = `
CREATE TABLE IF NOT EXISTS account (name TEXT PRIMARY KEY, balance INTEGER NOT NULL);
CREATE TABLE IF NOT EXISTS payment (
	account TEXT NOT NULL, key TEXT NOT NULL, amount INTEGER NOT NULL, PRIMARY KEY (account, key));
INSERT OR IGNORE INTO account VALUES ('ann', 100), ('bob', 100);`

// ledger is the database.
type ledger struct{ *sql.DB }

func openLedger(ctx context.Context, path string) (*ledger, error) {
	db, err := sql.Open("sqlite", "file:"+path+"?_pragma=busy_timeout(5000)&_txlock=immediate")
	if err != nil {
		return nil, err
	}
	if _, err := db.ExecContext(ctx, schema+fence.SQLite.Schema()); err != nil {
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
// It shows the fence, so that what an earlier holder of the lock has read and not yet written comes too late from now
// on.
func (l *ledger) read(ctx context.Context, number uint64, p payment) (balance int, paid bool, err error) {
	err = fence.SQLite.Do(ctx, l.DB, p.lock(), number, func(tx *sql.Tx) error {
		if err := tx.QueryRowContext(ctx, `SELECT balance FROM account WHERE name = ?`,
			p.account).Scan(&balance); err != nil {
			return err
		}
		var amount int
		err := tx.QueryRowContext(ctx, `SELECT amount FROM payment WHERE account = ? AND key = ?`, p.account,
			p.key).Scan(&amount)
		switch {
		case err == nil && amount != p.amount:
			return errOtherKey
		case err == nil:
			paid = true
			return nil
		case !errors.Is(err, sql.ErrNoRows):
			return err
		case balance < p.amount:
			return errTooLow
		}
		return nil
	})
	return balance, paid, err
}

// write writes the payment and the new balance, unless a later holder of the lock has come: then it is fence.ErrStale.
func (l *ledger) write(ctx context.Context, number uint64, p payment, balance int) error {
	return fence.SQLite.Do(ctx, l.DB, p.lock(), number, func(tx *sql.Tx) error {
		if _, err := tx.ExecContext(ctx, `UPDATE account SET balance = ? WHERE name = ?`, balance, p.account); err != nil {
			return err
		}
		_, err := tx.ExecContext(ctx, `INSERT INTO payment VALUES (?, ?, ?)`, p.account, p.key, p.amount)
		return err
	})
}
