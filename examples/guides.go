//go:build guides

// Package examples is never built. The code of the guides may use its imports, under these names. They also keep these
// modules in go.mod.
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
	_ "sync/atomic"
	_ "syscall"
	_ "testing"
	_ "testing/synctest"
	_ "time"

	_ "github.com/prometheus/client_golang/prometheus"
	_ "github.com/redis/go-redis/extra/redisotel/v9"
	_ "github.com/redis/go-redis/v9"
	_ "github.com/stretchr/testify/require"
	_ "go.opentelemetry.io/otel/metric/noop"

	_ "github.com/fairlock/fairlock-go/contrib/otel"
	_ "github.com/fairlock/fairlock-go/contrib/prometheus"
	_ "github.com/fairlock/fairlock-go/fairlock"
	_ "github.com/fairlock/fairlock-go/fairlocktest"
	_ "github.com/fairlock/fairlock-go/fence"
	_ "github.com/fairlock/fairlock-go/leader"
	_ "github.com/fairlock/fairlock-go/limithttp"
	_ "github.com/fairlock/fairlock-go/token"
	_ "github.com/fairlock/fairlock-go/ui"
)
