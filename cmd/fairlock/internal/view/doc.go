// Package view shows locks to a person or a script: as a table, as lines, as JSON, or live on a terminal.
//
// Any program that has a token can release its lock, so tokens are shown redacted, and what stands in Redis and is no
// token is not shown at all. Names can have any bytes; a terminal gets none that would control it.
package view
