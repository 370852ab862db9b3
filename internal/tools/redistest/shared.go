package redistest

import (
	"fmt"
	"os/exec"
	"slices"
	"testing"
)

// shared is the server that the tests of this process share; nil without redis-server.
var shared *Server

// Main runs the tests of a package beside one redis-server that they share, and returns the exit code, for os.Exit in
// TestMain.
func Main(m *testing.M) int {
	if _, err := exec.LookPath("redis-server"); err == nil {
		tb := &wholeProcess{}
		defer tb.end()
		shared = Start(tb)
	}
	return m.Run()
}

// Shared returns the server that all tests of this process share. A test keeps to a namespace of its own there: it
// stops nothing, configures nothing and flushes nothing.
func Shared(tb testing.TB) *Server {
	tb.Helper()
	if shared == nil {
		tb.Fatal(missing)
	}
	return &Server{tb: tb, network: shared.network, addr: shared.addr}
}

// wholeProcess is what Start needs of a testing.TB, for the time of all tests.
type wholeProcess struct {
	testing.TB

	cleanups []func()
}

func (p *wholeProcess) Helper()                           {}
func (p *wholeProcess) Cleanup(f func())                  { p.cleanups = append(p.cleanups, f) }
func (p *wholeProcess) Fatal(args ...any)                 { panic(fmt.Sprint(args...)) }
func (p *wholeProcess) Fatalf(format string, args ...any) { panic(fmt.Sprintf(format, args...)) }

func (p *wholeProcess) end() {
	for _, f := range slices.Backward(p.cleanups) {
		f()
	}
}
