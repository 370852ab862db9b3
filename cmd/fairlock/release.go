package main

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"

	"github.com/fairlock/fairlock-go/cmd/fairlock/internal/view"
)

const releaseHelp = `Takes the lock NAME from all who hold it, with --force, and gives it to the next in line. It shows from whom, and asks on a
terminal; elsewhere it needs --yes.

It is for a holder that hangs and cannot be ended. One that has died needs it only if nobody can wait for the end of its
lease. A holder that is alive goes on until its next renewal, up to a third of its TTL: meanwhile two may be at work, and
only a resource that checks fences is safe. So end the holder first, if that can be done.

Only the holders that were shown lose the lock: one that was granted it since keeps it. The next fence is above theirs.

With --json, one object, a lock as in fairlock status --json being an element of its array:
  released      whether anybody held it (false: nothing was done)
  before        the lock that was taken
  after         the lock then

Exit code: 0, also if nobody held it; 1 if the answer was no; 2 without --force, or without --yes if there is no terminal;
see help exit-codes for others.`

const releaseExample = `  fairlock release billing:42 --force
  fairlock release api --kind semaphore --force --yes
  fairlock release billing:42 --force --yes --json | jq -r '.after.holders[].client'   # who has it now`

// releaser takes a lock from its holders.
type releaser struct {
	id         view.ID
	force, yes bool
	json       bool
	in         io.Reader
	out, errs  io.Writer
}

func releaseCommand(c *connection) *cobra.Command {
	var r releaser
	var kind string
	cmd := &cobra.Command{
		Use:               "release NAME --force",
		Short:             "Take a lock from whoever holds it",
		Long:              releaseHelp,
		Example:           releaseExample,
		Args:              oneName,
		ValidArgsFunction: cobra.NoFileCompletions,
		RunE: func(cmd *cobra.Command, names []string) error {
			kinds, err := kindsOf(kind)
			if err != nil {
				return err
			}
			r.in, r.out, r.errs = cmd.InOrStdin(), cmd.OutOrStdout(), cmd.ErrOrStderr()
			r.id = view.ID{Kind: kinds[0], Name: names[0]}
			switch {
			case !r.force:
				return usage("release takes the lock from whoever holds it: say --force if that is meant")
			case !r.yes && keyboard(r.in) == nil:
				return usage("there is no terminal to ask on: say --yes to release without a question")
			}
			return withServer(cmd.Context(), c, r.run)
		},
	}
	kindFlag(cmd, &kind, "mutex, semaphore or rw (default mutex)")
	f := cmd.Flags()
	f.BoolVar(&r.force, "force", false, "take it from whoever holds it")
	f.BoolVar(&r.yes, "yes", false, "do not ask")
	f.BoolVar(&r.json, "json", false, "for scripts")
	return cmd
}

func (r *releaser) run(ctx context.Context, s view.Server) error {
	before, err := r.look(ctx, s)
	if err != nil {
		return err
	}
	if !before.Held() && !before.Resting {
		return r.report(false, before, before)
	}
	if !r.yes {
		if err := r.ask(ctx, before); err != nil {
			return err
		}
	}
	released, err := force(ctx, s, before)
	if err != nil {
		return err
	}
	after, err := r.look(ctx, s)
	if err != nil {
		return fmt.Errorf("%s is released; who has it now could not be read: %w", r.id, err)
	}
	return r.report(released, before, after)
}

func (r *releaser) look(ctx context.Context, s view.Server) (view.Lock, error) {
	answered := patiently("waiting for an answer")
	locks, err := s.Look(ctx, view.Most, r.id)
	answered()
	if err != nil {
		return view.Lock{}, err
	}
	return locks[0], nil
}

// ask shows who holds the lock and waits for a yes.
func (r *releaser) ask(ctx context.Context, l view.Lock) error {
	_ = writeLines(r.errs, l.Block(view.Paint{On: colours(r.errs)}, view.All))
	_, _ = fmt.Fprintf(r.errs, "Take %s from %s? [y/N] ", r.id, holders(l))
	answer := make(chan string, 1)
	go func() { // ends with the program, if nobody answers
		line, _ := bufio.NewReader(r.in).ReadString('\n')
		answer <- strings.ToLower(strings.TrimSpace(line))
	}()
	select {
	case a := <-answer:
		if a == "y" || a == "yes" {
			return nil
		}
		return withCode(exitFailure, fmt.Errorf("%s was not released", r.id))
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// force takes the lock from those who held it when it was looked at, and reports whether anybody still did. One call
// takes from so many and serves so many; the rest is for the next.
func force(ctx context.Context, s view.Server, l view.Lock) (taken bool, err error) {
	lock := l.In(s.Redis, s.Namespace)
	for {
		h, err := lock.ForceRelease(ctx, l.Fence)
		taken = taken || h.Released
		if err == nil && h.Released && h.More {
			continue
		}
		for more := h.More; more && err == nil; {
			more, err = lock.Admit(ctx)
		}
		return taken, err
	}
}

// report says from whom the lock was taken and who has it now.
func (r *releaser) report(released bool, before, after view.Lock) error {
	if r.json {
		_, err := fmt.Fprintf(r.out, "{\"released\":%t,\"before\":%s,\"after\":%s}\n", released, before.JSON(), after.JSON())
		return err
	}
	now := "nobody has it now"
	if after.Held() {
		now = "now held by " + holders(after)
	}
	text := fmt.Sprintf("%s was taken from %s; %s; its last number is %d", r.id, holders(before), now, after.Fence)
	switch {
	case !before.Held() && !before.Resting:
		text = fmt.Sprintf("%s is not held; nothing was done", r.id)
	case !released:
		text = fmt.Sprintf("%s was given back meanwhile; nothing was done; %s", r.id, now)
	}
	_, err := fmt.Fprintln(r.out, text)
	return err
}

// holders names those who hold a lock, the first of them if there are many.
func holders(l view.Lock) string {
	const most = 3
	var names []string
	for i, h := range l.Holders {
		if i == most && len(l.Holders) > most+1 {
			names = append(names, fmt.Sprintf("%d others", len(l.Holders)-most))
			break
		}
		who := "somebody whose key is not fairlock's"
		if !h.Token.IsZero() {
			who = h.Token.Client()
		}
		names = append(names, fmt.Sprintf("%s (fence %d)", who, h.Fence))
	}
	if len(names) == 0 {
		return "nobody (it rests, because Redis had lost its data)"
	}
	return strings.Join(names, ", ")
}
