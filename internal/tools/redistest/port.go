package redistest

import (
	"net"
	"os"
	"strconv"
	"sync/atomic"
	"testing"
)

// tried is how many ports this process has tried.
var tried atomic.Int64

// FreePort returns a port of the loopback interface that is free, as is the port 10000 above it, where a cluster has
// its bus. Both are below the ephemeral ports (from 32768 on Linux), and no other call in this process returns them. So
// they stay free until redis-server listens on them, and while it is stopped.
func FreePort(tb testing.TB) int {
	tb.Helper()
	const first, many = 10000, 12000
	for range many {
		port := first + (os.Getpid()*61+int(tried.Add(1)))%many
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
