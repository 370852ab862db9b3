package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/url"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/spf13/pflag"

	"github.com/fairlock/fairlock-go/fairlock"
	"github.com/fairlock/fairlock-go/lua"
)

// The environment that says which Redis to use. CMD of `fairlock run` does not see the first two, nor a variable that
// --redis names.
const (
	envRedis     = "FAIRLOCK_REDIS"
	envPassword  = "FAIRLOCK_REDIS_PASSWORD" //nolint:gosec // its name
	envNamespace = "FAIRLOCK_NAMESPACE"
)

// The environment that tells CMD what it holds.
const (
	envName  = "FAIRLOCK_NAME"
	envFence = "FAIRLOCK_FENCE"
	envToken = "FAIRLOCK_TOKEN" //nolint:gosec // its name
)

const (
	defaultRedis = "redis://localhost:6379"
	// connecting is how long the first connection may take.
	connecting = 5 * time.Second
)

// connection is how to reach Redis, and which part of it to use: persistent flags of the root command.
type connection struct {
	redis        string // URL, or "env:" and the name of a variable that has it
	passwordFile string
	namespace    string
}

func (c *connection) flags(f *pflag.FlagSet) {
	f.StringVar(&c.redis, "redis", "", "`URL` of the server (default $"+envRedis+", or "+defaultRedis+"); see help connection")
	f.StringVar(&c.passwordFile, "password-file", "", "read the password from the first line of this `FILE`")
	f.StringVar(&c.namespace, "namespace", os.Getenv(envNamespace), "prefix of all keys (default $"+envNamespace+", or fairlock)")
	f.Lookup("namespace").DefValue = "" // it would stand in the help twice
}

// open returns a client that has answered once; the caller closes it. No error shows a password.
func (c *connection) open(ctx context.Context) (redis.UniversalClient, error) {
	target, err := c.target()
	if err != nil {
		return nil, err
	}
	rdb, err := target.client()
	if err != nil {
		return nil, err
	}
	answered := patiently("connecting to " + target.where())
	err = ping(ctx, rdb)
	answered()
	if err != nil {
		_ = rdb.Close()
		return nil, fmt.Errorf("redis at %s: %w", target.where(), err)
	}
	return rdb, nil
}

// prefix is the namespace, or the library's default.
func (c *connection) prefix() string { return cmp.Or(c.namespace, lua.DefaultNamespace) }

// url is the server's, with its password.
func (c *connection) url() (string, error) {
	t, err := c.target()
	if err != nil {
		return "", err
	}
	return t.url.String(), nil
}

// locks returns a fairlock client of that namespace; the caller closes it, before rdb. It does not log: the command's own
// lines say what it would.
func (c *connection) locks(rdb redis.UniversalClient, cfg fairlock.Config) (*fairlock.Client, error) {
	cfg.Namespace, cfg.Logger = c.namespace, slog.New(slog.DiscardHandler)
	return fairlock.New(rdb, cfg)
}

// ping asks once. That the user has no right to PING is an answer, too.
func ping(ctx context.Context, rdb redis.UniversalClient) error {
	limited, cancel := context.WithTimeout(ctx, connecting)
	defer cancel()
	answer := make(chan error, 1)
	go func() { answer <- pong(limited, rdb) }() // it does not hear of ctx while it reads
	var err error
	select {
	case err = <-answer:
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	switch {
	case err == nil || redis.HasErrorPrefix(err, "NOPERM"):
		return nil
	case ctx.Err() != nil:
		return context.Cause(ctx)
	case errors.Is(err, context.DeadlineExceeded):
		err = fmt.Errorf("no answer within %v", connecting)
	}
	return withCode(exitUnreachable, err)
}

// pong waits for an answer: of a cluster, of any master, for whoever does not answer may not be needed.
func pong(ctx context.Context, rdb redis.UniversalClient) error {
	cluster, ok := rdb.(*redis.ClusterClient)
	if !ok {
		return rdb.Ping(ctx).Err()
	}
	first := make(chan error, 1)
	tell := func(err error) {
		select {
		case first <- err:
		default:
		}
	}
	go func() {
		tell(cluster.ForEachMaster(ctx, func(ctx context.Context, master *redis.Client) error {
			err := master.Ping(ctx).Err()
			if err == nil || redis.HasErrorPrefix(err, "NOPERM") {
				tell(nil)
			}
			return err
		}))
	}()
	return <-first
}

// target is a server's URL, with its password.
type target struct {
	url  *url.URL
	kind serverKind
}

type serverKind int

const (
	single serverKind = iota
	cluster
	sentinel
)

// target finds the URL and the password. An error does not quote anything in which a password could stand.
func (c *connection) target() (target, error) {
	raw, err := c.raw()
	if err != nil {
		return target{}, err
	}
	u, err := parse(raw)
	if err != nil {
		return target{}, err
	}
	t := target{url: u, kind: single}
	query := u.Query()
	switch {
	case query.Has("master_name"):
		t.kind = sentinel
	case query.Has("cluster"):
		yes, err := strconv.ParseBool(query.Get("cluster"))
		if err != nil {
			return target{}, usage("redis URL: cluster must be true or false")
		}
		if yes {
			t.kind = cluster
		}
	case query.Has("addr"):
		t.kind = cluster
	}
	password, err := c.password()
	if err != nil {
		return target{}, err
	}
	t.give(password)
	return t, nil
}

// variable is the one that --redis names, if it does.
func (c *connection) variable() (name string, ok bool) { return strings.CutPrefix(c.redis, "env:") }

// raw is the URL as it was given.
func (c *connection) raw() (string, error) {
	name, indirect := c.variable()
	switch {
	case indirect:
		raw := os.Getenv(name)
		if raw == "" {
			return "", usage("--redis env:%s: there is no such variable, or it is empty", name)
		}
		return raw, nil
	case c.redis != "":
		return c.redis, nil
	case os.Getenv(envRedis) != "":
		return os.Getenv(envRedis), nil
	}
	return defaultRedis, nil
}

// password is the one that is given beside the URL, or empty.
func (c *connection) password() (string, error) {
	if c.passwordFile == "" {
		return os.Getenv(envPassword), nil
	}
	content, err := os.ReadFile(c.passwordFile)
	if err != nil {
		return "", usage("--password-file: %w", err)
	}
	line, _, _ := strings.Cut(string(content), "\n")
	line = strings.TrimSuffix(line, "\r")
	if line == "" {
		return "", usage("--password-file %s: its first line is empty", c.passwordFile)
	}
	return line, nil
}

// parse reads a URL. What url.Parse has to say about a wrong one may be a piece of a password.
func parse(raw string) (*url.URL, error) {
	scheme, _, _ := strings.Cut(raw, "://")
	switch scheme {
	case "redis", "rediss", "unix":
	default:
		return nil, usage("redis URL: must begin with redis://, rediss:// or unix://")
	}
	u, err := url.Parse(raw)
	if err != nil || u.Fragment != "" {
		return nil, usage("redis URL: cannot be read, want redis://user:password@host:6379/0 " +
			"(in a password, percent-encode what is not a letter or digit)")
	}
	if _, err := strconv.ParseUint(cmp.Or(u.Port(), "0"), 10, 16); err != nil {
		return nil, usage("redis URL: the port must be from 1 to 65535")
	}
	return u, nil
}

// give adds a password, unless the URL has one. With Sentinel, the user in front of the host is Sentinel's own.
func (t target) give(password string) {
	if password == "" {
		return
	}
	if t.kind == sentinel {
		query := t.url.Query()
		if !query.Has("password") {
			query.Set("password", password)
			t.url.RawQuery = query.Encode()
		}
		return
	}
	if _, has := t.url.User.Password(); !has {
		t.url.User = url.UserPassword(t.url.User.Username(), password)
	}
}

// plain is the URL as go-redis reads it: without what only we know.
func (t target) plain() string {
	u := *t.url
	if query := u.Query(); query.Has("cluster") {
		query.Del("cluster")
		u.RawQuery = query.Encode()
	}
	return u.String()
}

// client returns a client; nothing is sent yet.
func (t target) client() (redis.UniversalClient, error) {
	var rdb redis.UniversalClient
	var err error
	switch raw := t.plain(); t.kind {
	case sentinel:
		var o *redis.FailoverOptions
		if o, err = redis.ParseFailoverURL(raw); err == nil {
			rdb = redis.NewFailoverClient(o)
		}
	case cluster:
		var o *redis.ClusterOptions
		if o, err = redis.ParseClusterURL(raw); err == nil {
			rdb = redis.NewClusterClient(o)
		}
	default:
		var o *redis.Options
		if o, err = redis.ParseURL(raw); err == nil {
			rdb = redis.NewClient(o)
		}
	}
	switch {
	case err == nil:
		return rdb, nil
	case mayHoldPassword(t.url.String()):
		return nil, usage("redis URL: wrong (it may hold a password, so no more is said)")
	}
	return nil, usage("redis URL: %s", strings.TrimPrefix(err.Error(), "redis: "))
}

// where is the server's address.
func (t target) where() string {
	if t.url.Scheme == "unix" {
		return t.url.Path
	}
	return t.url.Host
}
