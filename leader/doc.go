// Package leader elects one leader among processes that campaign for the same lock: an [Elector] runs a function while its
// process leads, and campaigns again when the leadership is lost.
//
//	elector := leader.New(client, "scheduler", leader.Options{})
//	err := elector.Run(ctx, func(ctx context.Context) error { // ctx ends when this process leads no more
//		return schedule(ctx)
//	})
//
// To lead is to hold the lock, and all that package fairlock promises of a lock is true of the leadership:
//
//   - One leader at a time. A leader that is cut off from Redis has its ctx ended before another process leads. After
//     a failover that loses writes, a forced release or a step of Redis's clock, two processes can lead until the first
//     one's next renewal. Only a resource that checks fences is safe from that, and from a function that does not obey its
//     ctx.
//   - The candidate that has waited longest leads next: at once when the leader resigns, and when the rest of the lock's
//     TTL has passed after the leader has crashed.
//   - One function at a time in a process. A process whose function still runs under a lost leadership does not campaign.
//
// Use one Elector for each lock and process. The ctx of Run should be the one that ends when the process is to stop, at
// SIGTERM for example: then the leader resigns at once, and fairlock.Client.Shutdown need not wait. Shutdown alone does not end
// a leadership, and waits for it until its own ctx ends.
package leader
