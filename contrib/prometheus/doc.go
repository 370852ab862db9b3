// Package promfairlock exports metrics of fairlock's locks to Prometheus.
//
// Metrics are those of one process: durations of waits and holds, numbers of waiters and leases, losses. It makes them
// from the events of fairlock.Trace, without I/O. LockCollector exports the state of some locks for all processes, such
// as the number of waiters and the longest wait. It reads them from Redis at each scrape.
//
// Metrics, labels and buckets are those that OpenTelemetry's exporter for Prometheus makes from the instruments of
// package otelfairlock. So the dashboard and the alert rules beside this package serve both.
//
// Everything here is safe for concurrent use.
package promfairlock
