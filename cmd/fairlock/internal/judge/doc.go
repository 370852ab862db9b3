// Package judge decides whether a lock kept its promises, from what its users saw and from nothing else: one holder
// at a time, in the order of arrival, with fences that grow.
//
// It knows nothing of the lock but its tickets and fences, and does not rely on the tickets alone: who was in the
// queue before another one even asked must be served first, whatever their tickets say.
package judge
