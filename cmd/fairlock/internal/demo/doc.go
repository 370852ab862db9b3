// Package demo shows a fair lock at work. Processes contend for one lock, and two of them are killed. There is a live
// display, and a check of the recorded history at the end.
//
// Each client is a process of its own (Child), which gets orders and sends events over its standard streams. Run ends
// all that it starts before it returns.
package demo
