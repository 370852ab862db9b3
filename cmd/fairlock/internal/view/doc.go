// Package view shows locks to a person or a script: who holds them, since when, who waits, and who of those is silent.
//
// A Server reads them. Look reads some locks that are known by name, List finds all that are in use, Watch looks again
// and again. Nothing here changes anything in Redis, and no call keeps it busy: what one script or one SCAN does is
// bounded, and at most so many of them go in one pipeline. Where a ctx is taken, its end ends the call at once; what
// go-redis is doing then is left to its own timeouts.
//
// What is read is shown as text (Lock.Block, Table), as JSON, or on a Screen. Whoever has a token can release its lock,
// so tokens are shown redacted, and what stands in Redis and is no token is not shown at all. Names can have any bytes;
// a terminal gets none that would control it.
package view
