// Package promfairlock exports metrics of fairlock's locks to Prometheus.
//
// Metrics shows what the locks of a process do, such as how long they are waited for and held, how many wait and hold,
// and what was lost. It makes them of the events of fairlock.Trace, without I/O. LockCollector shows what Redis knows
// of some locks, for all processes, such as how many wait, and for how long the first of them has waited. It asks Redis
// at each scrape.
//
// Metrics, labels and buckets are those that OpenTelemetry's exporter for Prometheus makes of the instruments of
// package otelfairlock. So the dashboard and the alert rules beside this package serve both.
//
// Everything here is safe for concurrent use.
package promfairlock
