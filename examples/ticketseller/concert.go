package main

import (
	"context"
	"database/sql"
	"errors"

	_ "modernc.org/sqlite" // the driver "sqlite", in pure Go
)

var (
	errSoldOut = errors.New("sold out")
	errLate    = errors.New("too late: a later holder of the lock is at it, or has been")
)

// The highest fence that was seen stands in the row that it protects.
const schema = `
CREATE TABLE concert (tickets INTEGER NOT NULL, sold INTEGER NOT NULL, fence INTEGER NOT NULL);
CREATE TABLE sale (ticket INTEGER NOT NULL, buyer TEXT NOT NULL, fence INTEGER NOT NULL);`

// concert is the database.
type concert struct{ *sql.DB }

func openConcert(ctx context.Context, path string, tickets int) (*concert, error) {
	db, err := sql.Open("sqlite", "file:"+path+"?_pragma=busy_timeout(5000)")
	if err != nil {
		return nil, err
	}
	if _, err := db.ExecContext(ctx, schema+`INSERT INTO concert VALUES (?, 0, 0)`, tickets); err != nil {
		return nil, errors.Join(err, db.Close())
	}
	return &concert{db}, nil
}

// sold returns how many tickets are sold, or errSoldOut. It shows the fence already, so that what earlier holders of
// the lock have read and not yet written comes too late from now on.
func (c *concert) sold(ctx context.Context, fence uint64) (int, error) {
	var tickets, sold int
	err := c.QueryRowContext(ctx, `UPDATE concert SET fence = ?1 WHERE fence <= ?1 RETURNING tickets, sold`, fence).
		Scan(&tickets, &sold)
	switch {
	case errors.Is(err, sql.ErrNoRows):
		err = errLate
	case err == nil && sold == tickets:
		err = errSoldOut
	}
	return sold, err
}

// sell writes a sale down, unless a later holder of the lock has written already: then it is errLate.
func (c *concert) sell(ctx context.Context, ticket int, buyer string, fence uint64) error {
	tx, err := c.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer tx.Rollback() //nolint:errcheck // nothing is left to roll back after Commit
	// One statement looks at the fence and writes. A SELECT before it would leave a gap between the two.
	r, err := tx.ExecContext(ctx, `UPDATE concert SET sold = ?, fence = ? WHERE fence <= ?`, ticket, fence, fence)
	if err != nil {
		return err
	}
	if n, err := r.RowsAffected(); err != nil || n == 0 {
		return errors.Join(err, errLate)
	}
	if _, err := tx.ExecContext(ctx, `INSERT INTO sale VALUES (?, ?, ?)`, ticket, buyer, fence); err != nil {
		return err
	}
	return tx.Commit()
}
