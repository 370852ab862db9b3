// Package bench measures what fair locks cost on a server, beside the floor: the least that anything can cost there.
//
// There are three workloads: lock and unlock of free locks by one goroutine, the same by many, and handoffs of one lock
// among many contenders. Each is measured in short slices, fairlock and the floor in turn, so that other load on the
// machine and the network affects both.
//
// The floor of a lock and unlock is SET NX PX and a script that compares and deletes, by plain go-redis on the same
// connections. The floor of a handoff is a message that is passed from client to client: a PUBLISH and its delivery.
package bench
