// Package leader elects one leader among processes that campaign for the same lock. An [Elector] runs a function while
// its process leads, and campaigns again when the leadership is lost.
//
//	elector := leader.New(client, "scheduler", leader.Config{Address: "10.0.0.3:8080"}) // to be found
//	err := elector.Run(ctx, func(ctx context.Context) error { // ctx ends when this process leads no more
//		return schedule(ctx)
//	})
//
// The leader holds the lock, so everything that package fairlock promises about a lock applies to the leadership:
//
//   - One leader at a time. The ctx of a leader that is cut off from Redis ends before another process leads. After a
//     failover that loses writes, a forced release or a step of Redis's clock, two processes can lead until the first
//     one's next renewal. Only a resource that checks fences is safe from that, and from a function that ignores its
//     ctx.
//   - The candidate that has waited longest leads next. It begins at once when the leader resigns, and when the lease
//     ends if the leader has crashed.
//   - One function at a time in a process. A process whose function still runs under a lost leadership does not
//     campaign.
//
// Use one Elector for each lock and process. Give Run a ctx that ends when the process should stop, at SIGTERM for
// example. Then the leader resigns at once, and fairlock.Client.Shutdown need not wait. Shutdown alone waits for a
// leadership until its own ctx ends. docs/service.md in the repository has the order in which a service ends.
package leader
