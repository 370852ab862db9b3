package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/signal"
	"strconv"
	"strings"
	"syscall"

	"github.com/redis/go-redis/v9"

	"github.com/fairlock/fairlock-go/fairlock"
)

// Exit codes. `fairlock help exit-codes` has them for users.
const (
	exitFailure     = 1
	exitUsage       = 2   // called wrongly
	exitUnreachable = 69  // Redis does not answer, or refuses (EX_UNAVAILABLE)
	exitBusy        = 75  // the lock is held, or somebody waits for it (EX_TEMPFAIL)
	exitLost        = 76  // the lease was lost
	exitTimeout     = 124 // waited too long, as timeout(1)
	exitCannotRun   = 126 // CMD cannot be run, as sh(1)
	exitNotFound    = 127 // CMD is not found, as sh(1)
	exitSignal      = 128 // and the signal's number, as sh(1)
	exitInterrupted = exitSignal + int(syscall.SIGINT)
	exitKilled      = exitSignal + int(syscall.SIGKILL)
)

// errSilent stands for an exit code that needs no words.
var errSilent = errors.New("")

// codedError is an error that decides the exit code.
type codedError struct {
	error
	code int
}

func (e codedError) Unwrap() error { return e.error }

// withCode returns err with the exit code it leads to; nil stays nil.
func withCode(code int, err error) error {
	if err == nil {
		return nil
	}
	return codedError{err, code}
}

// usage is a mistake on the command line.
func usage(format string, args ...any) error {
	return withCode(exitUsage, fmt.Errorf(format, args...))
}

// interrupted is the cause of a context that a signal has ended.
type interrupted struct{ signal syscall.Signal }

func (i interrupted) Error() string { return "interrupted by " + i.signal.String() }

// interrupts gets the signals that end what the program does; not while CMD gets them.
var interrupts = make(chan os.Signal, 1)

func listenForInterrupts() {
	listen(interrupts, syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP, syscall.SIGQUIT)
}

// interruptible returns a context that ends with SIGINT, SIGTERM, SIGHUP or SIGQUIT; a second one ends the program at
// once. A SIGINT or SIGHUP that was ignored when the program began, as nohup has it, stays ignored.
func interruptible(parent context.Context) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancelCause(parent)
	over := make(chan struct{})
	listenForInterrupts()
	go func() {
		defer signal.Stop(interrupts)
		for {
			select {
			case s := <-interrupts:
				if ctx.Err() != nil {
					exit(exitSignal + int(s.(syscall.Signal))) // left to itself, SIGQUIT would have Go print all stacks
				}
				cancel(interrupted{s.(syscall.Signal)})
			case <-over:
				return
			}
		}
	}()
	return ctx, func() {
		cancel(context.Canceled)
		close(over)
	}
}

// listen is signal.Notify for those signals that are not ignored. (Go says so of SIGINT and SIGHUP only.)
func listen(c chan<- os.Signal, signals ...os.Signal) {
	for _, s := range signals {
		if !signal.Ignored(s) {
			signal.Notify(c, s)
		}
	}
}

// exitCode is what the program's end tells about err.
func exitCode(err error) int {
	if err == nil {
		return 0
	}
	if e, ok := errors.AsType[codedError](err); ok {
		return e.code
	}
	if i, ok := errors.AsType[interrupted](err); ok {
		return exitSignal + int(i.signal)
	}
	switch {
	case errors.Is(err, fairlock.ErrInvalid):
		return exitUsage
	case errors.Is(err, fairlock.ErrBusy):
		return exitBusy
	case errors.Is(err, fairlock.ErrLost):
		return exitLost
	case ofRedis(err):
		return exitUnreachable
	}
	return exitFailure
}

// ofRedis reports whether err is of a Redis that cannot be reached, or its answer. (An Errno alone says nothing: every
// one of them is a net.Error.)
func ofRedis(err error) bool {
	if _, ok := errors.AsType[redis.Error](err); ok {
		return true
	}
	if _, ok := errors.AsType[*net.OpError](err); ok {
		return true
	}
	return errors.Is(err, io.EOF) || errors.Is(err, redis.ErrPoolTimeout) || errors.Is(err, os.ErrDeadlineExceeded)
}

// say writes an error as one line. A signal that the user has sent is no news to them.
func say(w io.Writer, err error) {
	if _, ok := errors.AsType[interrupted](err); ok || err.Error() == "" {
		return
	}
	_, _ = fmt.Fprintln(w, "fairlock:", oneLine(err))
}

// oneLine joins what errors.Join has put on lines of their own, and escapes what a terminal would not show as it is: an
// argument, a file's name or what a server says may hold that.
func oneLine(err error) string {
	text := strings.ReplaceAll(strings.TrimPrefix(err.Error(), "fairlock: "), "\n", "; ")
	var b strings.Builder
	for _, r := range text {
		if strconv.IsPrint(r) {
			b.WriteRune(r)
		} else {
			b.WriteString(strings.Trim(strconv.QuoteRune(r), "'"))
		}
	}
	return b.String()
}
