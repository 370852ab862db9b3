// Package demo shows a fair lock at work: processes that contend for one lock, two of which are killed, a live display,
// and a check of the recorded history at the end.
//
// Each client is a process of its own (Child), which gets orders and sends events over its standard streams. Without a
// Redis, Run starts one in memory, on a port of the loopback interface and with a random password. Run owns everything
// that it starts: goroutines, processes and the server are gone when it returns.
package demo
