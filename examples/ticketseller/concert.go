package main

import (
	"context"
	"database/sql"
	"errors"

	_ "modernc.org/sqlite" // the driver "sqlite", in pure Go

	"github.com/fairlock/fairlock-go/fence"
)

var errSoldOut = errors.New("sold out")

// resource is what the database keeps the highest fence for.
const resource = "concert"

const schema = `
CREATE TABLE concert (tickets INTEGER NOT NULL, sold INTEGER NOT NULL);
CREATE TABLE sale (ticket INTEGER NOT NULL, buyer TEXT NOT NULL, fence INTEGER NOT NULL);`

// concert is the database.
type concert struct{ *sql.DB }

func openConcert(ctx context.Context, path string, tickets int) (*concert, error) {
	db, err := sql.Open("sqlite", "file:"+path+"?_pragma=busy_timeout(5000)")
	if err != nil {
		return nil, err
	}
	if _, err := db.ExecContext(ctx, schema+`INSERT INTO concert VALUES (?, 0);`+fence.SQLite.Schema(),
		tickets); err != nil {
		return nil, errors.Join(err, db.Close())
	}
	return &concert{db}, nil
}

// sold returns how many tickets are sold, or errSoldOut. It shows the fence already, so that what earlier holders of
// the lock have read and not yet written comes too late from now on.
func (c *concert) sold(ctx context.Context, number uint64) (sold int, err error) {
	err = fence.SQLite.Do(ctx, c.DB, resource, number, func(tx *sql.Tx) error {
		var tickets int
		err := tx.QueryRowContext(ctx, `SELECT tickets, sold FROM concert`).Scan(&tickets, &sold)
		if err == nil && sold == tickets {
			err = errSoldOut
		}
		return err
	})
	return sold, err
}

// sell writes a sale down, unless a later holder of the lock has shown its fence already: then it is fence.ErrStale.
func (c *concert) sell(ctx context.Context, ticket int, buyer string, number uint64) error {
	return fence.SQLite.Do(ctx, c.DB, resource, number, func(tx *sql.Tx) error {
		if _, err := tx.ExecContext(ctx, `UPDATE concert SET sold = ?`, ticket); err != nil {
			return err
		}
		_, err := tx.ExecContext(ctx, `INSERT INTO sale VALUES (?, ?, ?)`, ticket, buyer, number)
		return err
	})
}
