//go:build guides

// Package examples is never built: its imports are those that the code of the guides may use, under these names, and they
// hold in go.mod what that needs. (Of redsync it names a package whose tests need little: go mod tidy wants what they
// need, too.)
package examples

import (
	_ "context"
	_ "database/sql"
	_ "errors"
	_ "fmt"
	_ "log"
	_ "log/slog"
	_ "net/http"
	_ "os"
	_ "os/signal"
	_ "slices"
	_ "sync"
	_ "syscall"
	_ "testing"
	_ "testing/synctest"
	_ "time"

	_ "github.com/bsm/redislock"
	_ "github.com/go-redsync/redsync/v4/redis/goredis/v9"
	_ "github.com/redis/go-redis/extra/redisotel/v9"
	_ "github.com/redis/go-redis/v9"
	_ "github.com/redis/rueidis"
	_ "github.com/redis/rueidis/rueidislock"
	_ "github.com/stretchr/testify/require"
	_ "go.etcd.io/etcd/client/v3"
	_ "go.etcd.io/etcd/client/v3/concurrency"

	_ "github.com/fairlock/fairlock-go/fairlock"
	_ "github.com/fairlock/fairlock-go/fairlocktest"
	_ "github.com/fairlock/fairlock-go/token"
)
