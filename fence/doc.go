// Package fence makes a database reject writes from a holder that lost its lock without noticing.
//
// A process can be paused between its last look at the lease and its write. When it goes on, another one may hold the
// lock and may have written. No lock can prevent that. The resource can: each grant of a lock has a number, the fence,
// which is greater than those of all earlier grants. The resource keeps the highest fence that it was shown, and
// refuses a lower one.
//
//	lock := client.Mutex("account:42")
//	err := lock.Do(ctx, func(ctx context.Context) error {
//		number, err := fence.FromContext(ctx, lock)
//		if err != nil {
//			return err
//		}
//		return fence.Postgres.Do(ctx, db, "account:42", number, func(tx *sql.Tx) error {
//			// Read and write by tx. All of it is rolled back if a later holder has shown its fence.
//			_, err := tx.ExecContext(ctx, `UPDATE account SET balance = balance - 10 WHERE id = 42`)
//			return err
//		})
//	})
//
// [SQL] does so in PostgreSQL, MySQL, MariaDB and SQLite, by database/sql alone. [Redis] does so for keys in Redis.
// Other resources compare and write in one step of their own: docs/concepts.md in the repository has a document store
// and an HTTP header.
//
// # What to keep to
//
//   - One resource, one lock. Fences of different locks have nothing to do with each other.
//   - Show the fence before you read what the write depends on, and read in the same transaction. Otherwise an earlier
//     holder can write after your read and before you show the fence, and its update is lost without an error.
//   - A lock with several holders has no order between their fences. That is why a [fairlock.Semaphore] is not accepted
//     here, and the lease of a reader is an error.
//
// A failover of Redis to a server whose clock is behind can break the order of fences; see docs/protocol.md.
//
// All functions are safe for concurrent use.
package fence
