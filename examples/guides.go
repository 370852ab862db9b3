//go:build guides

// Package examples is never built: it holds in go.mod what the code of the guides needs. (Of redsync it names a package
// whose tests need little: go mod tidy wants what they need, too.)
package examples

import (
	_ "github.com/bsm/redislock"
	_ "github.com/go-redsync/redsync/v4/redis/goredis/v9"
	_ "github.com/redis/rueidis/rueidislock"
	_ "go.etcd.io/etcd/client/v3/concurrency"

	_ "github.com/fairlock/fairlock-go/fairlocktest"
)
