// Package promfairlock exports metrics of fairlock's locks to Prometheus.
//
// Metrics has what the locks of a process do: how long they are waited for and held, how many wait and hold, what was lost.
// It makes them of the events of fairlock.Trace, without I/O. LockCollector has what Redis knows of some locks, for all
// processes: how many wait, and for how long the first of them has waited. It asks Redis at each scrape.
//
// Metrics, labels and buckets are those that OpenTelemetry's exporter for Prometheus makes of the instruments of package
// otelfairlock. So the dashboard and the alert rules beside this package serve both.
//
// Everything here is safe for concurrent use.
package promfairlock
