package demo

import (
	"context"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/fairlock/fairlock-go/cmd/fairlock/internal/view"
	"github.com/fairlock/fairlock-go/internal/tools/inspect"
)

// show shows the lock until ctx ends or the user quits the live display.
func (d *demo) show(ctx context.Context, server *inspect.Server, in io.Reader) error {
	w := view.Watch{Server: server, IDs: []inspect.ID{{Kind: d.Kind, Name: d.lock}}, Every: time.Second}
	if !d.Live {
		w.Run(ctx, func(g view.Glance) {
			if g.Err != nil {
				d.note(g.Err.Error())
			}
			for _, l := range g.Locks {
				d.note(view.Line(l))
			}
		})
		return nil
	}
	w.Every = view.MinInterval
	live := view.Live{Watch: w, Paint: view.Paint{Colours: true}, Title: func(time.Time) string { return d.title() },
		Notes: d.foot}
	return live.Show(ctx, in, d.out)
}

// stats returns the number of grants, as text.
func (d *demo) stats() string {
	d.mu.Lock()
	defer d.mu.Unlock()
	all, names := 0, make([]string, len(d.grants))
	for i, n := range d.grants {
		all += n
		names[i] = fmt.Sprintf("%s %d", clientName(i), n)
	}
	return fmt.Sprintf("%d grants: %s", all, strings.Join(names, ", "))
}

// foot returns the notes below the live display.
func (d *demo) foot() []string {
	stats := d.stats()
	d.mu.Lock()
	defer d.mu.Unlock()
	return append(slices.Clone(d.notes), stats)
}

func (d *demo) title() string {
	return fmt.Sprintf("fairlock demo   %v · %d clients × %d workers · Redis %s   %.1fs",
		d.Type, d.Clients, d.Workers, d.Where, time.Since(d.began).Seconds())
}
