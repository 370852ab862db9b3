// Command bench measures fairlock beside other lock libraries and the bare pair: SET NX and a script that compares and
// deletes, the least that a lock with a token can cost. It starts the servers itself. `make benchmarks` writes its
// results, the page docs/benchmarks.md, and the pictures of that page and of the README.
//
// The workloads are those of fairlock bench (internal/tools/workload). A cell is one peer in one workload in one round.
// The peers are measured in turn, in another order in each round. Every rate is divided by that of the bare pair in the
// same round, so that other load of the machine affects both. The page has medians over the rounds.
//
// bench is a module of its own: nobody who uses the library or the command gets the other libraries, or etcd. With the
// build tag nightly it also measures etcd.
package main
