// Package lua has the scripts that are the lock. What sends them is in internal/script.
package lua

import "embed"

// Files are the scripts: those that all kinds of locks share, and in a folder each, those of a kind.
//
//go:embed scripts
var Files embed.FS
