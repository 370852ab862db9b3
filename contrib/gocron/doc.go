// Package gocronfairlock shares the jobs of a gocron scheduler between the replicas of a program. Each replica has the
// same jobs, and one of them runs a job when it is due.
//
//   - [Task] makes a task that runs under a lock. It is the only form in which the ctx of a job ends when the lock is
//     lost.
//   - A [Locker] takes a lock for every job of a scheduler, by the job's name.
//   - An [Elector] lets the scheduler of one replica run all jobs.
//
// The README has the rules, and a table that says which minimum hold to choose.
package gocronfairlock
