// Package admin looks at locks and intervenes, for operators and for programs that work for them: a dashboard, a
// command, an autoscaler. Programs that lock use package fairlock.
//
// A Client needs no fairlock.Client and keeps no state: each call reads or changes a lock in Redis. Errors are a
// *fairlock.Error with the operation and the lock. It wraps a fairlock.ErrInvalid, which names the field and its
// bounds, and nothing was sent. Or it wraps fairlock.ErrUnreachable, fairlock.ErrRefused, the error of ctx, or that of
// Redis.
//
// Inspect and List change nothing. They send scripts by EVALSHA_RO and EVAL_RO, which need no right to write; List also
// needs SCAN, on each master of a Cluster. Before Redis 7, or if Redis refuses these commands, scripts are sent by
// EVALSHA. The other methods need the rights of a program that locks.
package admin
