// Package bench measures what fair locks cost on a server, beside the floor: the least that anything can cost there.
//
// There are three workloads: a lock and unlock of free locks, one after the other and by many goroutines at once, and
// handoffs of one lock among many contenders. Each is measured in short slices, fairlock's and those of the floor in
// turn, round by round, so that what else goes on in the machine and the network affects both.
//
// The floor of a lock and unlock is SET NX PX and a script that compares and deletes, by plain go-redis on the same
// connections. The floor of a handoff is a message that is passed from client to client: a PUBLISH and its delivery.
package bench
