package main

import (
	"bufio"
	"cmp"
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"time"

	_ "github.com/jackc/pgx/v5/stdlib" // the driver "pgx"

	"github.com/fairlock/fairlock-go/fence"
)

// check is what a holder does before it writes.
type check string

const (
	nothing check = "nothing"
	look    check = "look"  // it looks at its lease, by what the library has for that
	fenced  check = "fence" // the database compares the fence, by package fence
)

// updater updates a counter in PostgreSQL under a lock of the same name, as often as its parent says.
type updater struct {
	Peer, Addr string
	TTL        time.Duration
	DSN, Name  string
	Check      check
}

// update is one: read the counter, work, write what was read and 1 more.
type update struct {
	Work time.Duration // between read and write
	Stop stop
}

// stop says where the update waits, for its parent to stop the process.
type stop string

const (
	nowhere   stop = ""
	working   stop = "in the midst of the work"
	afterLook stop = "between the check and the write"
)

// outcome is the updater's word for its parent.
type outcome struct {
	Stopping bool   `json:",omitempty"` // it is where it should be stopped, and goes on when its parent writes a line
	Wrote    bool   `json:",omitempty"` // the update is acknowledged
	Refused  string `json:",omitempty"` // by the check
	Failed   string `json:",omitempty"` // neither
}

// updateLimit is how long an update may take.
const updateLimit = 30 * time.Second

func (u *updater) run() error {
	p, err := peerNamed(u.Peer)
	if err != nil {
		return err
	}
	db, err := sql.Open("pgx", u.DSN)
	if err != nil {
		return err
	}
	s, err := p.open(u.Addr, u.TTL)
	if err != nil {
		return err
	}
	in, out := bufio.NewScanner(os.Stdin), json.NewEncoder(os.Stdout)
	fmt.Println(ready, "null")
	for in.Scan() {
		var what update
		if err := json.Unmarshal(in.Bytes(), &what); err != nil {
			return err
		}
		pause := func(at stop) error {
			if what.Stop != at {
				return nil
			}
			if err := out.Encode(outcome{Stopping: true}); err != nil {
				return err
			}
			in.Scan() // also while this process is stopped
			return in.Err()
		}
		if err := out.Encode(u.update(s.(holder), db, what, pause)); err != nil { //nolint:forcetypeassert // all in the table are
			return err
		}
		if what.Stop != nowhere { // a session that was stopped may not be good any more
			s.close()
			if s, err = p.open(u.Addr, u.TTL); err != nil {
				return err
			}
		}
	}
	return in.Err()
}

func (u *updater) update(s holder, db *sql.DB, what update, pause func(stop) error) outcome {
	ctx, cancel := context.WithTimeout(context.Background(), updateLimit)
	defer cancel()
	g, err := s.hold(ctx, u.Name)
	if err != nil {
		return outcome{Failed: "lock: " + err.Error()}
	}
	defer func() { _ = g.unlock(ctx) }() // it may be lost
	var value int
	err = u.do(ctx, db, g, func(q querier) error {
		return q.QueryRowContext(ctx, `SELECT value FROM counter WHERE name = $1`, u.Name).Scan(&value)
	})
	if err != nil {
		return outcome{Failed: "read: " + err.Error()}
	}
	time.Sleep(what.Work / 2)
	if err := pause(working); err != nil {
		return outcome{Failed: err.Error()}
	}
	time.Sleep(what.Work / 2)
	if u.Check == look {
		if err := g.look(ctx); err != nil {
			return outcome{Refused: err.Error()}
		}
	}
	if err := pause(afterLook); err != nil {
		return outcome{Failed: err.Error()}
	}
	err = u.do(ctx, db, g, func(q querier) error {
		_, err := q.ExecContext(ctx, `UPDATE counter SET value = $1 WHERE name = $2`, value+1, u.Name)
		return err
	})
	switch {
	case err == nil:
		return outcome{Wrote: true}
	case errors.Is(err, fence.ErrStale):
		return outcome{Refused: err.Error()}
	default:
		return outcome{Failed: "write: " + err.Error()}
	}
}

// querier is a *sql.DB or a *sql.Tx.
type querier interface {
	QueryRowContext(ctx context.Context, query string, args ...any) *sql.Row
	ExecContext(ctx context.Context, query string, args ...any) (sql.Result, error)
}

// do runs f, and shows the database the fence if that is the check.
func (u *updater) do(ctx context.Context, db *sql.DB, g grant, f func(querier) error) error {
	if u.Check != fenced {
		return f(db)
	}
	return fence.Postgres.Do(ctx, db, u.Name, g.fence, func(tx *sql.Tx) error { return f(tx) })
}

// error is why an update has failed that should not have.
func (o outcome) error() error {
	if o.Failed != "" || o.Refused != "" {
		return errors.New(cmp.Or(o.Failed, o.Refused))
	}
	return nil
}
