// Package bench measures what fair locks cost on a server, beside the least that anything can cost there.
//
// There are three workloads: a lock and unlock on free locks, one after the other and by many goroutines at once, and
// hand-offs of one lock among many contenders. Each is measured in short slices, ours and the floor's in turn, round by
// round, so that what else goes on in the machine and the network hits both.
//
// The floor of a lock and unlock is SET NX PX and a script that compares and deletes, by plain go-redis on the same
// connections. The floor of a hand-off is a message that is passed from client to client: one PUBLISH, one wake-up.
package bench
