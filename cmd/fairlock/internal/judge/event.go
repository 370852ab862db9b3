package judge

// Kind is what an Event tells.
type Kind string

// The kinds of events. Others are ignored.
const (
	Queued    Kind = "queued"    // a waiter has heard that it is in the queue: Ticket; only its first one counts
	Granted   Kind = "granted"   // Lock has returned: Asked, Fence
	Left      Kind = "left"      // a waiter gives up
	Unlocking Kind = "unlocking" // Unlock is called: from here on nothing is done under the lock
	Unlocked  Kind = "unlocked"  // Unlock has returned without an error
	Lost      Kind = "lost"      // the holder's lease ended without its doing
	Killed    Kind = "killed"    // the whole client died, and has neither ID nor acquisition
)

// Event is something that a client of the lock saw or did. The times of a history are read from one clock.
type Event struct {
	Kind   Kind   `json:"kind"`
	Client string `json:"client"`
	ID     string `json:"id,omitempty"`     // the acquisition's, unique in the history
	At     int64  `json:"at"`               // ns
	Asked  int64  `json:"asked,omitempty"`  // ns; Granted: when Lock was called
	Ticket uint64 `json:"ticket,omitempty"` // Queued
	Fence  uint64 `json:"fence,omitempty"`  // Granted
	Weight int    `json:"weight,omitempty"` // Granted, and others if it is known: how much of the capacity; 0 counts as 1
}
