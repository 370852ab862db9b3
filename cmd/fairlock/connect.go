package main

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/url"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"

	"github.com/redis/go-redis/v9"
	"github.com/spf13/pflag"

	"github.com/fairlock/fairlock-go/fairlock"
	"github.com/fairlock/fairlock-go/internal/bounds"
	"github.com/fairlock/fairlock-go/internal/tools/inspect"
)

// The environment variables that say which Redis to use. The CMD of `fairlock run` does not get the first two or a
// variable that --redis names. envWithheld says so to a fairlock that CMD starts.
const (
	envRedis     = "FAIRLOCK_REDIS"
	envPassword  = "FAIRLOCK_REDIS_PASSWORD" //nolint:gosec // its name
	envNamespace = "FAIRLOCK_NAMESPACE"
	envWithheld  = "FAIRLOCK_REDIS_WITHHELD"
)

const (
	defaultRedis = "redis://localhost:6379"
	// connecting is how long it may take to connect, or to find out why that fails.
	connecting = 5 * time.Second
	// probeAfter is how long a port may be silent before the command finds out whether it speaks TLS.
	probeAfter = 500 * time.Millisecond
	// shortLimit is how long it may take to close connections, or to learn more about an error when ctx has ended.
	shortLimit = 50 * time.Millisecond
)

// connection has the flags of the root command that say how to reach Redis, and which namespace to use.
type connection struct {
	redis        string // URL, or "env:" and the name of a variable that has it
	passwordFile string
	namespace    string
	tls          tlsFiles
}

func (c *connection) flags(f *pflag.FlagSet) {
	f.StringVar(&c.redis, "redis", "", "`URL` of the server (default $"+envRedis+", or "+defaultRedis+
		"); see help connection")
	f.StringVar(&c.passwordFile, "password-file", "", "read the password from the first line of this `FILE`")
	f.StringVar(&c.namespace, "namespace", os.Getenv(envNamespace), "prefix of all keys (default $"+envNamespace+
		", or fairlock)")
	f.Lookup("namespace").DefValue = "" // the help text has it already
	c.tls.flags(f)
}

// open returns a client of a server that has replied once. The caller closes it. No error shows a password.
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
	probing, cancel := context.WithTimeout(context.Background(), connecting)
	defer cancel()
	reason := make(chan error, 1)
	probe := time.AfterFunc(probeAfter, func() { reason <- target.reason(probing) })
	err = ping(ctx, rdb)
	answered()
	early := probe.Stop()
	if err == nil {
		return rdb, nil
	}
	go func() { _ = rdb.Close() }() // with a Sentinel that hangs, it waits for that
	err = fmt.Errorf("redis at %s: %w", target.where(), withCode(exitCode(err), inspect.Said(ctx, rdb, err)))
	if inspect.Refused(err) {
		return nil, err
	}
	if early {
		probe.Reset(0)
	}
	if ctx.Err() != nil {
		time.AfterFunc(shortLimit, cancel)
	}
	if other := <-reason; other != nil {
		err = fmt.Errorf("%w; %w", err, other)
	}
	return nil, err
}

// roleOf reports whether a server is a replica. A server that cannot have locks is an error.
func (t target) roleOf(ctx context.Context, rdb redis.UniversalClient) (replica bool, err error) {
	plain, ok := rdb.(*redis.Client)
	if !ok {
		return false, nil
	}
	hello, err := inspect.Hello(ctx, plain)
	switch {
	case err != nil:
		return false, fmt.Errorf("redis at %s: %w", t.where(), err)
	case hello["mode"] == "sentinel":
		return false, usage("%s is a Sentinel: --redis needs the name of the master, master_name=… (see help connection)",
			t.where())
	case hello["mode"] == "cluster":
		return false, usage(
			"this server is one node of a cluster, and has only a part of the locks; --redis needs the URL of the " +
				"cluster (see help connection)")
	}
	return hello["role"] == "replica", nil
}

func errReplica(t target) error {
	return withCode(exitUnreachable, fmt.Errorf("%s is a replica: name the primary", t.where()))
}

// openPrimary returns a client, as open, of a server that can grant locks.
func (c *connection) openPrimary(ctx context.Context) (redis.UniversalClient, error) {
	rdb, err := c.open(ctx)
	if err != nil {
		return nil, err
	}
	target, err := c.target()
	replica := false
	if err == nil {
		replica, err = target.roleOf(ctx, rdb)
	}
	if replica {
		err = errReplica(target)
	}
	if err != nil {
		go func() { _ = rdb.Close() }()
		return nil, err
	}
	return rdb, nil
}

// prefix returns the namespace, or the library's default.
func (c *connection) prefix() string { return cmp.Or(c.namespace, bounds.DefaultNamespace) }

// locks returns a fairlock client of that namespace. The caller closes it before rdb. It does not log, because the
// command prints the same itself.
func (c *connection) locks(rdb redis.UniversalClient, cfg fairlock.Config) (*fairlock.Client, error) {
	cfg.Namespace, cfg.Logger = c.namespace, slog.New(slog.DiscardHandler)
	return fairlock.New(rdb, cfg)
}

// ping sends requests until the server replies. It tries until ctx ends, or for connecting if ctx has no deadline. A
// refusal counts as a reply: reads may work without the right to PING, and locks can wait. On a cluster, one master
// that replies suffices, as the others may not be needed.
func ping(parent context.Context, rdb redis.UniversalClient) error {
	ctx, cancel := parent, func() {}
	if _, limited := parent.Deadline(); !limited {
		ctx, cancel = context.WithTimeoutCause(parent, connecting, fmt.Errorf("no answer within %v", connecting))
	}
	defer cancel()
	ctx, answered := context.WithCancelCause(ctx)
	defer answered(nil)
	errAnswered := errors.New("")
	one := func(ctx context.Context, rdb redis.Cmdable) error {
		err := rdb.Ping(ctx).Err()
		if err == nil || redis.HasErrorPrefix(err, "NOPERM") || inspect.Passing(err) {
			answered(errAnswered)
			return nil
		}
		return err
	}
	try := func() error { return one(ctx, rdb) }
	if cluster, ok := rdb.(*redis.ClusterClient); ok {
		try = func() error {
			return cluster.ForEachMaster(ctx, func(ctx context.Context, m *redis.Client) error { return one(ctx, m) })
		}
	}
	_, err := inspect.Await(ctx, func() (struct{}, error) {
		for {
			err := try()
			if timeout, ok := errors.AsType[net.Error](err); !ok || !timeout.Timeout() || ctx.Err() != nil {
				return struct{}{}, err
			}
		}
	})
	switch cause := context.Cause(ctx); {
	case cause == errAnswered, err == nil: //nolint:errorlint // the cause itself
		return nil
	case cause != nil:
		err = cause
	}
	if parent.Err() != nil {
		return err
	}
	return withCode(exitUnreachable, err)
}

// target has a server's URL with its password, and the TLS settings of a connection.
type target struct {
	url  *url.URL
	kind serverKind
	tls  func(*tls.Config) // sets the certificates
}

type serverKind int

const (
	single serverKind = iota
	cluster
	sentinel
)

// target finds the URL and the password. An error quotes nothing that could contain a password.
func (c *connection) target() (t target, err error) {
	if wrong := bounds.WrongNamespace(c.namespace); wrong != "" {
		return t, usage("namespace: %s", wrong)
	}
	raw, err := c.raw()
	if err == nil {
		t.url, err = parse(raw)
	}
	if err != nil {
		return t, err
	}
	if t.tls, err = c.tls.read(t.url.Scheme); err != nil {
		return t, err
	}
	query := t.url.Query()
	isCluster, err := strconv.ParseBool(cmp.Or(query.Get("cluster"), "false"))
	switch {
	case query.Has("master_name"):
		t.kind = sentinel
	case err != nil:
		return t, usage("redis URL: cluster must be true or false")
	case isCluster, query.Has("addr"):
		t.kind = cluster
	}
	password, err := c.password()
	t.give(password)
	return t, err
}

// variable returns the environment variable that --redis names, if it names one.
func (c *connection) variable() (name string, ok bool) { return strings.CutPrefix(c.redis, "env:") }

// raw returns the URL as it was given.
func (c *connection) raw() (string, error) {
	name, indirect := c.variable()
	given := os.Getenv(envRedis)
	switch {
	case indirect && os.Getenv(name) == "":
		return "", usage("--redis env:%s: the variable is not set or empty", name)
	case indirect:
		return os.Getenv(name), nil
	case cmp.Or(c.redis, given) == "" && os.Getenv(envWithheld) != "":
		return "", usage(
			"the outer fairlock run does not pass on its server: use --redis here, or --pass-redis there")
	}
	return cmp.Or(c.redis, given, defaultRedis), nil
}

// password returns the password that is given beside the URL, or "".
func (c *connection) password() (string, error) {
	if c.passwordFile == "" {
		password := os.Getenv(envPassword)
		if strings.ContainsFunc(password, unicode.IsControl) {
			return "", usage("%s: has control characters, such as a newline at its end", envPassword)
		}
		return password, nil
	}
	content, err := os.ReadFile(c.passwordFile)
	if err != nil {
		return "", usage("--password-file: %w", err)
	}
	line, _, _ := strings.Cut(string(content), "\n")
	if line = strings.TrimSuffix(line, "\r"); line == "" {
		return "", usage("--password-file %s: its first line is empty", c.passwordFile)
	}
	return line, nil
}

// parse parses a URL. It drops the error of url.Parse, which may quote a part of a password.
func parse(raw string) (*url.URL, error) {
	if bounds.Unseen(raw) {
		return nil, usage("redis URL: has a space or a newline at an end, or an unprintable character")
	}
	scheme, _, _ := strings.Cut(raw, "://")
	if !slices.Contains([]string{"redis", "rediss", "unix"}, strings.ToLower(scheme)) {
		return nil, usage("redis URL: must begin with redis://, rediss:// or unix://")
	}
	u, err := url.Parse(raw)
	if err != nil || u.Fragment != "" {
		return nil, usage("redis URL: cannot be parsed, want redis://user:password@host:6379/0 " +
			"(in a password, percent-encode all but letters and digits)")
	}
	if _, err := strconv.ParseUint(cmp.Or(u.Port(), "0"), 10, 16); err != nil {
		return nil, usage("redis URL: the port must be from 1 to 65535")
	}
	return u, nil
}

// give adds a password, unless the URL has one. With Sentinel, the user in front of the host is Sentinel's own.
func (t target) give(password string) {
	query := t.url.Query()
	_, has := t.url.User.Password()
	switch {
	case password == "":
	case t.kind == sentinel && !query.Has("password"):
		query.Set("password", password)
		t.url.RawQuery = query.Encode()
	case t.kind != sentinel && !has:
		t.url.User = url.UserPassword(t.url.User.Username(), password)
	}
}

// plain returns the URL without our own parameters, for go-redis.
func (t target) plain() string {
	u := *t.url
	if query := u.Query(); query.Has("cluster") {
		query.Del("cluster")
		u.RawQuery = query.Encode()
	}
	return u.String()
}

// client returns a client. Nothing is sent yet. It dials once in an attempt, so that the cause of a failure comes in
// time. It obeys the deadline of a ctx, as fairlock doctor recommends, except on a Cluster. There go-redis would end
// its search for the list of commands while a node hangs, and begin it again with each request. So each request could
// take 5 s, and a command sends few requests.
func (t target) client() (rdb redis.UniversalClient, err error) {
	switch raw := t.plain(); t.kind {
	case sentinel:
		rdb, err = parsed(redis.ParseFailoverURL, raw, func(o *redis.FailoverOptions) *redis.Client {
			o.ContextTimeoutEnabled, o.DialerRetries = true, 1
			t.secure(o.TLSConfig)
			return redis.NewFailoverClient(o)
		})
	case cluster:
		rdb, err = parsed(redis.ParseClusterURL, raw, func(o *redis.ClusterOptions) *redis.ClusterClient {
			o.DialerRetries = 1
			t.secure(o.TLSConfig)
			return redis.NewClusterClient(o)
		})
	default:
		rdb, err = parsed(redis.ParseURL, raw, func(o *redis.Options) *redis.Client {
			o.ContextTimeoutEnabled, o.DialerRetries = true, 1
			t.secure(o.TLSConfig)
			return redis.NewClient(o)
		})
	}
	switch {
	case err == nil:
		return rdb, nil
	case mayHoldPassword(t.url.String()):
		return nil, usage("redis URL: invalid (it may contain a password, so details are hidden)")
	}
	return nil, usage("redis URL: %s", strings.TrimPrefix(err.Error(), "redis: "))
}

// secure sets the certificates, if the URL is one with TLS.
func (t target) secure(c *tls.Config) {
	if c != nil {
		t.tls(c)
	}
}

func parsed[O any, C redis.UniversalClient](parse func(string) (O, error), raw string,
	client func(O) C) (rdb redis.UniversalClient, err error) {
	o, err := parse(raw)
	if err != nil {
		return nil, err
	}
	return client(o), nil
}

// where returns the server's address, and the number of the database if that is not 0.
func (t target) where() string {
	address, db := t.url.Host, strings.Trim(t.url.Path, "/")
	if t.url.Scheme == "unix" {
		address, db = t.url.Path, ""
	}
	if db = cmp.Or(t.url.Query().Get("db"), db, "0"); db != "0" {
		address += ", database " + db
	}
	return address
}

// Possible reasons why a server does not answer.
var (
	errTLS   = errors.New("that port speaks TLS: begin the URL with rediss://")
	errNoTLS = errors.New("that port does not speak TLS: begin the URL with redis://")
	errCert  = errors.New("that port requires a client certificate: use --tls-cert and --tls-key")
	reasons  = []error{errTLS, errNoTLS, errCert}
)

// alertIn returns the TLS alert that the server has sent, or "".
func alertIn(err error) string {
	if e, ok := errors.AsType[*net.OpError](err); ok && e.Op == "remote error" {
		return e.Err.Error()
	}
	return ""
}

// reason returns one of these errors, or nil. It returns when ctx ends.
func (t target) reason(ctx context.Context) error {
	if t.url.Scheme == "unix" {
		return nil
	}
	address := net.JoinHostPort(cmp.Or(t.url.Hostname(), "localhost"), cmp.Or(t.url.Port(), "6379"))
	dial := func() net.Conn {
		conn, err := new(net.Dialer).DialContext(ctx, "tcp", address)
		if err != nil {
			return nil
		}
		context.AfterFunc(ctx, func() { _ = conn.Close() })
		return conn
	}
	reply, conn := make([]byte, 1), dial()
	if conn == nil {
		return nil
	}
	unchecked := &tls.Config{InsecureSkipVerify: true} //nolint:gosec // nothing is sent
	if t.url.Scheme == "redis" {
		if err := tls.Client(conn, unchecked).HandshakeContext(ctx); err == nil || alertIn(err) != "" {
			return errTLS
		}
		return nil
	}
	_, _ = conn.Write([]byte("PING\r\n"))
	if _, err := conn.Read(reply); err == nil && (reply[0] == '+' || reply[0] == '-') {
		return errNoTLS
	}
	if conn = dial(); conn == nil {
		return nil
	}
	// No request may be under way. Otherwise the server could reset the connection, and its alert could be lost.
	t.secure(unchecked)
	if _, err := tls.Client(conn, unchecked).Read(reply); alertIn(err) == "tls: certificate required" {
		return errCert
	}
	return nil
}

// withoutPassword moves a URL that may have a password from the arguments to the environment. It reports whether there
// was one.
func withoutPassword(args, env []string) (cleaned, moved []string, found bool) {
	cleaned, moved = slices.Clone(args), slices.Clone(env)
	for i, arg := range cleaned {
		if arg == "--" {
			break
		}
		raw, joined := strings.CutPrefix(arg, "--redis=")
		if !joined && (i == 0 || cleaned[i-1] != "--redis") || !mayHoldPassword(raw) {
			continue
		}
		moved = slices.DeleteFunc(moved, func(v string) bool { return strings.HasPrefix(v, envRedis+"=") })
		moved = append(moved, envRedis+"="+raw)
		cleaned[i] = strings.TrimSuffix(arg, raw) + "env:" + envRedis
		found = true
	}
	return cleaned, moved, found
}

// mayHoldPassword reports whether a URL may have a password, even in a wrong place because it was not encoded.
func mayHoldPassword(raw string) bool {
	_, rest, _ := strings.Cut(raw, "://")
	before, _, at := strings.Cut(rest, "@")
	return at && strings.Contains(before, ":") || strings.Contains(raw, "password")
}
