// Package demo shows a fair lock at work: clients that contend for one lock, two of which crash, a live display, and a
// check of the history at the end.
//
// Without a Redis it brings its own, in memory, and the clients share this process; a crash cuts a client's
// connections for good. With one, each client is a process of its own, which gets orders and sends events over its
// standard streams; a crash is a SIGKILL. Either way the clients report events to one recorder, from which the display
// and the result are made.
//
// Run owns everything it starts: goroutines, processes and the server in memory are gone when it returns.
package demo
