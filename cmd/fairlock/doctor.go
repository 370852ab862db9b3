package main

import (
	"context"
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/fairlock/fairlock-go/cmd/fairlock/internal/doctor"
	"github.com/fairlock/fairlock-go/fairlock"
)

var doctorHelp = `Checks a server for what fair locks need, and says what to do. Of a cluster, each master is checked.

Each check is ok, a warning, a problem, or unchecked: what a service or the rights of this user forbid to look at, CONFIG
and INFO above all, is no fault. The last lines are the least rights that locks in the namespace need, as a command for
redis-cli.

Two locks of its own are taken, waited for and handed over; nothing is left of them. Rights are tried by commands that
change nothing; those that are refused stand in the server's ACL LOG. Nothing that can be slow is asked of the server.

Checks: ` + strings.Join(doctor.Checks(), ", ") + `.

With --json: {"namespace", "acl", "checks": [{"check", "server", "result", "found", "advice", "values"}], "problems",
"warnings", "unchecked"}; result is "ok", "warning", "problem" or "unchecked", and values, if there are any, are the
figures behind it: times in _us (µs), sizes in _bytes.

Exit code: 0 if there is no problem, 1 if there is one, 69 if the server cannot be reached or refuses the user.`

func doctorCommand(c *connection) *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "doctor",
		Short: "Check a server for what locks need",
		Long:  doctorHelp,
		Example: `  fairlock doctor
  fairlock doctor --redis rediss://billing@redis.example.com:6380 --namespace billing
  fairlock doctor --json | jq '.checks[] | select(.result == "problem")'`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			progress := newProgress(cmd.ErrOrStderr())
			report, err := c.doctor(cmd.Context(), progress.show)
			progress.clear()
			if err != nil && exitCode(err) != exitUnreachable {
				return err
			}
			if werr := writeReport(cmd.OutOrStdout(), report, asJSON); werr != nil {
				return werr
			}
			if err == nil && report.Problems > 0 {
				err = withCode(exitFailure, errSilent)
			}
			return err
		},
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "write JSON")
	return cmd
}

// doctor checks the server. With a report on one that is out of reach comes the error.
func (c *connection) doctor(ctx context.Context, show func(string)) (doctor.Report, error) {
	target, err := c.target()
	if err != nil {
		return doctor.Report{}, err
	}
	o := doctor.Options{
		Namespace: c.prefix(),
		Address:   target.where(),
		Cluster:   target.kind == cluster,
		Now:       time.Now,
		Progress:  func(server, check string) { show("checking " + server + ": " + check) },
	}
	start := time.Now()
	show("connecting to " + o.Address)
	rdb, err := c.open(ctx)
	if err != nil {
		return doctor.Unreachable(o, err), err
	}
	defer func() { _ = rdb.Close() }()
	o.Connected = time.Since(start)
	locks, err := c.locks(rdb, fairlock.Config{})
	if err != nil { // a namespace that cannot be one
		return doctor.Report{}, err
	}
	defer locks.Close()
	report := doctor.Run(ctx, rdb, o)
	return report, context.Cause(ctx)
}

func writeReport(w io.Writer, r doctor.Report, asJSON bool) error {
	if asJSON {
		return writeJSON(w, r)
	}
	return r.Text(w, colours(w))
}
