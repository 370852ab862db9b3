package main

import (
	"bytes"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/fairlock/fairlock-go/fairlock"
	"github.com/fairlock/fairlock-go/internal/redistest"
)

// resize makes the terminal that wide and high.
func (s *terminal) resize(width, height uint16) {
	s.t.Helper()
	size := &unix.Winsize{Col: width, Row: height}
	require.NoError(s.t, unix.IoctlSetWinsize(int(s.keys.Fd()), unix.TIOCSWINSZ, size))
}

// watching is fairlock watch on a terminal of 80 by 24.
func watching(t *testing.T, s *redistest.Server, env string, args ...string) *terminal {
	t.Helper()
	cmd := command(t, serverURL(s), append([]string{"watch", "--interval", "100ms"}, args...)...)
	cmd.Env = append(cmd.Env, "TERM=xterm-256color", env)
	screen := onTerminal(t, cmd)
	screen.resize(80, 24)
	return screen
}

const (
	entersScreen = "\x1b[?1049h"
	leavesScreen = "\x1b[?1049l"
)

// colour is a sequence that sets one, or bold or faint letters.
var colour = regexp.MustCompile(`\x1b\[[0-9;]*[1-9][0-9;]*m`)

func TestWatchDrawsWhatChanges(t *testing.T) {
	t.Parallel()
	for _, names := range [][]string{nil, {"x"}} {
		t.Run(fmt.Sprint(names), func(t *testing.T) {
			t.Parallel()
			s := redistest.Start(t)
			c := onLock(t, s, fairlock.Config{Name: "web-1"})
			screen := watching(t, s, "NO_COLOR=", names...)
			shown := screen.expect(entersScreen)
			shown += screen.expect("free"[:len("free")*len(names)]) // of all in use there is none
			lease := locked(t, c.Mutex("x"))
			shown += screen.expect("web-1")
			require.NoError(t, lease.Unlock(t.Context()))
			locked(t, onLock(t, s, fairlock.Config{Name: "batch-7"}).Mutex("x"))
			shown += screen.expect("batch-7")
			require.Regexp(t, colour, shown)
			screen.resize(20, 5)
			shown = screen.expect("…")
			require.NotContains(t, shown, leavesScreen)
			screen.enter("q")
			screen.expect(leavesScreen)
			code, _ := screen.rest()
			require.Equal(t, 0, code)
		})
	}
}

func TestWatchUsesNoColoursIfAskedNotTo(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	locked(t, onLock(t, s, fairlock.Config{Name: "web-1"}).Mutex("x"))
	screen := watching(t, s, "NO_COLOR=1", "x")
	shown := screen.expect("web-1")
	screen.enter(ctrlC)
	code, rest := screen.rest()
	require.Equal(t, 0, code)
	require.NotRegexp(t, colour, shown+rest)
}

// lineByLine is how a terminal reads for a shell: whole lines, shown as they are typed, and ^C is a signal.
const lineByLine = unix.ICANON | unix.ECHO | unix.ISIG

func (s *terminal) mode() int {
	s.t.Helper()
	mode, err := unix.IoctlGetTermios(int(s.keys.Fd()), unix.TCGETS)
	require.NoError(s.t, err)
	return int(mode.Lflag & lineByLine)
}

func TestWatchLeavesTheTerminalAsItWas(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	for name, end := range map[string]func(*terminal){
		"q":       func(screen *terminal) { screen.enter("q") },
		"^C":      func(screen *terminal) { screen.enter(ctrlC) },
		"SIGTERM": func(screen *terminal) { screen.signal(syscall.SIGTERM) },
		"SIGINT":  func(screen *terminal) { screen.signal(syscall.SIGINT) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			screen := watching(t, s, "NO_COLOR=", "x")
			screen.expect("free")
			require.Zero(t, screen.mode(), "keys are read as they come")
			end(screen)
			screen.expect(leavesScreen)
			code, rest := screen.rest()
			require.Equal(t, 0, code, rest)
			require.Equal(t, lineByLine, screen.mode())
		})
	}
}

func TestWatchWritesLinesOnATerminalIfAsked(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	screen := watching(t, s, "NO_COLOR=", "--plain", "x")
	require.NotContains(t, screen.expect("x: free"), "\x1b")
	screen.enter(ctrlC)
	code, rest := screen.rest()
	require.Equal(t, 0, code)
	require.NotContains(t, rest, "\x1b")
}

func TestStatusAndListUseColoursOnATerminalOnly(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	locked(t, onLock(t, s, fairlock.Config{}).Mutex("x"))
	for _, args := range [][]string{{"status", "x"}, {"list"}} {
		for _, env := range []string{"NO_COLOR=", "NO_COLOR=1"} {
			cmd := command(t, serverURL(s), args...)
			cmd.Env = append(cmd.Env, env)
			code, shown := onTerminal(t, cmd).rest()
			require.Equal(t, 0, code)
			require.Contains(t, shown, "held")
			require.Equal(t, env == "NO_COLOR=", colour.MatchString(shown), "%s %q", env, shown)
		}
	}
	cmd := command(t, serverURL(s), "list", "--prefix", "none")
	_, shown := onTerminal(t, cmd).rest()
	require.Equal(t, "no lock is in use\r\n", shown)
}

// slowly is a way to a server on which each SCAN takes that much longer.
func slowly(t *testing.T, s *redistest.Server, longer time.Duration) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "fairlock") //nolint:usetesting // t.TempDir is too long for a socket
	require.NoError(t, err)
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	path := filepath.Join(dir, "slow")
	listener, err := net.Listen("unix", path)
	require.NoError(t, err)
	var tasks sync.WaitGroup
	t.Cleanup(tasks.Wait)
	t.Cleanup(func() { _ = listener.Close() })
	tasks.Go(func() {
		for {
			client, err := listener.Accept()
			if err != nil {
				return
			}
			server, err := net.Dial(s.Network(), s.Addr())
			if err != nil {
				_ = client.Close()
				continue
			}
			tasks.Go(func() {
				defer func() { _ = client.Close() }()
				_, _ = io.Copy(client, server)
			})
			tasks.Go(func() {
				defer func() { _ = server.Close() }()
				buffer := make([]byte, 64<<10)
				for {
					n, err := client.Read(buffer)
					if err != nil {
						return
					}
					if bytes.Contains(bytes.ToLower(buffer[:n]), []byte("\r\nscan\r\n")) {
						time.Sleep(longer)
					}
					if _, err := server.Write(buffer[:n]); err != nil {
						return
					}
				}
			})
		}
	})
	return "unix://" + path
}

func TestListShowsProgressOnATerminal(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	locked(t, onLock(t, s, fairlock.Config{}).Mutex("x"))
	cmd := command(t, slowly(t, s, 1100*time.Millisecond), "list", "--json")
	code, shown := onTerminal(t, cmd).rest()
	require.Equal(t, 0, code)
	progress, result, found := strings.Cut(shown, " searched, 1 lock in use\r\x1b[K")
	require.True(t, found, shown)
	require.Regexp(t, `^\r\x1b\[K\d+ of \d+ keys$`, progress)
	require.Len(t, seenBy(t, result), 1)
	require.Contains(t, done(t, slowly(t, s, 1100*time.Millisecond), "list"), " x\n", "none without a terminal")
}

func TestWhatCannotBeWrittenIsAFailure(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	locked(t, onLock(t, s, fairlock.Config{}).Mutex("x"))
	full, err := os.OpenFile("/dev/full", os.O_WRONLY, 0)
	require.NoError(t, err)
	defer func() { _ = full.Close() }()
	for _, args := range [][]string{{"status", "x"}, {"status", "x", "--json"}, {"list"}, {"list", "--json"}} {
		cmd := command(t, serverURL(s), args...)
		cmd.Stdout = full
		refused(t, begin(t, cmd).wait(), exitFailure, "no space left")
	}
}
