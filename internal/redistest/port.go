package redistest

import (
	"net"
	"os"
	"strconv"
	"sync/atomic"
	"testing"
)

// lent is how many ports this process has tried.
var lent atomic.Int64

// FreePort returns a port of the loopback interface on which nobody listens, nor 10000 above it, where a cluster has its
// bus. Both are below those that systems give away unasked (from 32768 on Linux), and no other call of this process gets
// them: so nobody else does before redis-server has them, or while it is away.
func FreePort(tb testing.TB) int {
	tb.Helper()
	const first, many = 10000, 12000
	for range many {
		port := first + (os.Getpid()*61+int(lent.Add(1)))%many
		if free(port) && free(port+10000) {
			return port
		}
	}
	tb.Fatalf("no port from %d to %d is free", first, first+many-1)
	return 0
}

func free(port int) bool {
	l, err := net.Listen("tcp", local(port))
	if err != nil {
		return false
	}
	_ = l.Close()
	return true
}

func local(port int) string { return net.JoinHostPort("127.0.0.1", strconv.Itoa(port)) }
