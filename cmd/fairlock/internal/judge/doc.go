// Package judge decides whether a lock kept its promises, from what its users saw and from nothing else: no more held at
// a time than there is, in the order of arrival, with fences that grow.
//
// It knows one kind of lock: there is a capacity, and every grant has a weight. A mutex has a capacity of 1. Of a
// read-write lock a reader weighs 1 and a writer everything.
//
// It knows nothing of the lock but its tickets and fences, and does not rely on the tickets alone: who was in the
// queue before another one even asked must be served first, whatever their tickets say.
package judge
