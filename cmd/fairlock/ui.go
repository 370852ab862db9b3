package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/fairlock/fairlock-go/ui"
)

func uiCommand(c *connection) *cobra.Command {
	l := looker{connection: c}
	var addr string
	var names []string
	var release bool
	cmd := &cobra.Command{
		Use:   "ui",
		Short: "Serve a web page that shows all locks",
		Args:  noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			host, _, err := net.SplitHostPort(addr)
			if err != nil {
				return usage("--addr: %w", err)
			}
			l.writes = release
			return l.with(cmd.Context(), cmd.OutOrStdout(), func(ctx context.Context) error {
				page, err := ui.NewHandler(l.Redis, ui.Options{Namespace: l.Namespace, AllowForceRelease: release})
				if err != nil {
					return err
				}
				defer func() { _ = page.Close() }()
				return l.serve(ctx, addr, onlyAs(append(names, host), page))
			})
		},
	}
	f := cmd.Flags()
	f.StringVar(&addr, "addr", "127.0.0.1:7380", "`ADDRESS` to listen on; with port 0, any free one")
	f.StringArrayVar(&names, "host", nil, "a `NAME` by which browsers reach the page, besides localhost and IP addresses")
	f.BoolVar(&release, "allow-force-release", false, "let everybody who can open the page take a lock from its holder")
	f.BoolVar(&l.replica, "allow-replica", false, "also read replicas, which may be behind")
	return cmd
}

// serve serves until ctx ends, which is not an error.
func (l *looker) serve(ctx context.Context, addr string, page http.Handler) error {
	listener, err := new(net.ListenConfig).Listen(ctx, "tcp", addr)
	if err != nil {
		return withCode(exitFailure, fmt.Errorf("--addr: %w", err))
	}
	server := &http.Server{Handler: page, ReadHeaderTimeout: 10 * time.Second, ReadTimeout: 30 * time.Second,
		IdleTimeout: 2 * time.Minute}
	_, err = fmt.Fprintf(l.out, "listening on http://%s/ (Redis %s, namespace %s)\n", listener.Addr(), l.name, l.Namespace)
	if err != nil {
		return errors.Join(err, listener.Close())
	}
	served := make(chan error, 1)
	go func() { served <- server.Serve(listener) }()
	select {
	case err = <-served:
		return err
	case <-ctx.Done():
	}
	ending, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
	defer cancel()
	if server.Shutdown(ending) != nil {
		_ = server.Close()
	}
	if err = <-served; errors.Is(err, http.ErrServerClosed) {
		return nil
	}
	return err
}

// onlyAs serves requests that name the server by one of names, as localhost or by an IP address. Another site could
// point its own name here (DNS rebinding), and a browser would let its scripts read the pages.
func onlyAs(names []string, page http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		host := r.Host
		if h, _, err := net.SplitHostPort(host); err == nil {
			host = h
		}
		host = strings.Trim(host, "[]")
		_, err := netip.ParseAddr(host)
		named := slices.ContainsFunc(append(names, "localhost"), func(name string) bool {
			return name != "" && strings.EqualFold(name, host)
		})
		if err != nil && !named {
			http.Error(w, "this page is not known as "+cmp.Or(host, "that")+"; add that name by fairlock ui --host",
				http.StatusMisdirectedRequest)
			return
		}
		page.ServeHTTP(w, r)
	})
}
