package gocronfairlock

import (
	"context"
	"errors"

	"github.com/go-co-op/gocron/v2"

	"github.com/fairlock/fairlock-go/leader"
)

// ErrNotLeader means that this process does not lead.
var ErrNotLeader = errors.New("gocronfairlock: this process does not lead")

var _ gocron.Elector = (*Elector)(nil)

// Elector is a gocron.Elector, for gocron.WithDistributedElector. The scheduler runs jobs while its process leads. When
// the leader changes, a job that is due at that time may be skipped, or run by both. It is safe for concurrent use.
type Elector struct {
	elector *leader.Elector
}

// NewElector returns an Elector for the scheduler of a process that campaigns with e. The caller calls e.Run, with a
// function that waits until its ctx ends. The process leads while that function runs. NewElector does no I/O.
//
// To stop, call the scheduler's Shutdown first, which waits for running jobs. Then end the ctx of Run, so that another
// process leads after these jobs have ended. NewElector panics if e is nil.
func NewElector(e *leader.Elector) *Elector {
	if e == nil {
		panic("gocronfairlock: NewElector of a nil Elector")
	}
	return &Elector{e}
}

// IsLeader returns nil if this process leads. Otherwise it returns ErrNotLeader, and gocron skips the run. It does no
// I/O. It looks at the clock, so a process that was paused or cannot reach Redis begins no job after its leadership has
// ended.
//
// gocron does not end a job that runs when the leadership is lost.
func (e *Elector) IsLeader(context.Context) error {
	if e.elector.Lease() == nil {
		return ErrNotLeader
	}
	return nil
}
