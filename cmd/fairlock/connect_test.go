package main

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"math/big"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/fairlock/fairlock-go/internal/redistest"
)

func TestRedisThatIsNotThereOrRefusesExitsWith69(t *testing.T) {
	t.Parallel()
	s := guarded(t)
	for name, c := range map[string]struct{ url, why string }{
		"nobody there":     {"unix:///no/such/socket", "no such file"},
		"nobody listens":   {"redis://127.0.0.1:1", "refused"},
		"no password":      {serverURL(s), "NOAUTH"},
		"wrong password":   {"redis://:secretive@" + s.Addr(), "WRONGPASS"},
		"wrong user":       {"redis://nobody:secret@" + s.Addr(), "WRONGPASS"},
		"plain, not TLS":   {"rediss://:secret@" + s.Addr(), "redis at " + s.Addr()},
		"not a cluster":    {"redis://:secret@" + s.Addr() + "?cluster=true", "cluster"},
		"not a Sentinel":   {"redis://" + s.Addr() + "?master_name=main&password=secret", "sentinel"},
		"no such host":     {"redis://:secret@host.invalid:6379", "host.invalid"},
		"no such database": {"redis://:secret@" + s.Addr() + "/99", "DB"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			refused(t, call(t, c.url, "run", "x", "--", "true"), exitUnreachable, c.why)
		})
	}
	t.Run("hangs", func(t *testing.T) {
		t.Parallel()
		hung := redistest.Start(t)
		hung.Pause()
		refused(t, call(t, serverURL(hung), "run", "x", "--", "true"), exitUnreachable, "no answer within 5s")
	})
	t.Run("replica", func(t *testing.T) {
		t.Parallel()
		replica := redistest.StartTCP(t, "--replicaof", "127.0.0.1 1", "--replica-serve-stale-data", "yes")
		refused(t, call(t, serverURL(replica), "run", "x", "--", "true"), exitUnreachable, "READONLY")
	})
	t.Run("no rights", func(t *testing.T) {
		t.Parallel()
		limited := redistest.StartTCP(t)
		require.NoError(t, limited.Client().ACLSetUser(t.Context(), "u", "on", ">secret", "~other:*", "+@all").Err())
		refused(t, call(t, "redis://u:secret@"+limited.Addr(), "run", "x", "--", "true"), exitUnreachable, "NOPERM")
	})
}

func TestWrongURLsExitWith2AndKeepTheirPasswords(t *testing.T) {
	t.Parallel()
	for _, url := range []string{
		"http://localhost", "localhost:6379", "redis", "redis://u:secret@[::1/0", "redis://:secret@h:port", "redis://:sec%ret@h",
		"redis://:top/secret@h", "redis://u:12/secret@h", "redis://u:12?secret=1@h", "redis://u:12#secret@h",
		"redis://:secret@h/zero", "redis://:secret@h?colour=red", "redis://h?password=secret", "redis://h?cluster=maybe",
		"redis://h?master_name=m&password=secret&colour=red", "redis://:secret@h?addr=h2", "unix://u:secret@/s?colour=red",
		"redis://h?dial_timeout=soon", "redis://:secret@h:65536",
	} {
		refused(t, call(t, url, "run", "x", "--", "true"), exitUsage, "redis URL: ")
		refused(t, call(t, "", "run", "x", "--redis", url, "--", "true"), exitUsage, "redis URL: ")
	}
	refused(t, call(t, "", "run", "x", "--redis", "env:NO_SUCH_VARIABLE", "--", "true"), exitUsage, "NO_SUCH_VARIABLE")
	refused(t, call(t, "", "run", "x", "--password-file", "/no/such/file", "--", "true"), exitUsage, "no such file")
	refused(t, call(t, "", "run", "x", "--password-file", fileWith(t, "\n"), "--", "true"), exitUsage, "empty")
}

func TestAServerIsNamedByFlagOrEnvironment(t *testing.T) {
	t.Parallel()
	s := guarded(t)
	plain, whole := serverURL(s), "redis://:secret@"+s.Addr()
	inFile := fileWith(t, "secret\r\n")
	for name, c := range map[string]struct {
		env  []string
		args []string
	}{
		"FAIRLOCK_REDIS":         {[]string{envRedis + "=" + whole}, nil},
		"--redis":                {[]string{envRedis + "=unix:///no/such/socket"}, []string{"--redis", whole}},
		"a variable":             {[]string{"URL=" + whole}, []string{"--redis", "env:URL"}},
		"password in a variable": {[]string{envPassword + "=secret"}, []string{"--redis", plain}},
		"password in a file":     {[]string{envPassword + "=wrong"}, []string{"--redis", plain, "--password-file", inFile}},
		"password in the URL":    {[]string{envPassword + "=wrong", envRedis + "=" + whole}, nil},
		"user in the URL":        {[]string{envPassword + "=secret"}, []string{"--redis", "redis://default@" + s.Addr()}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			cmd := withEnv(command(t, "", append(append([]string{"run", "x"}, c.args...), "--", "echo", "in")...), c.env...)
			require.Equal(t, result{0, "in\n", ""}, begin(t, cmd).wait())
		})
	}
}

func TestAUserWithTheDocumentedRightsSuffices(t *testing.T) {
	t.Parallel()
	s := redistest.StartTCP(t)
	text, err := os.ReadFile(filepath.Join("..", "..", "docs", "operating.md"))
	require.NoError(t, err)
	line := regexp.MustCompile(`(?m)^ACL SETUSER (.*)$`).FindSubmatch(text)
	require.NotNil(t, line)
	args := []any{"acl", "setuser"}
	for word := range strings.FieldsSeq(string(line[1])) {
		args = append(args, word)
	}
	require.NoError(t, s.Client().Do(t.Context(), args...).Err())
	url := "redis://billing:password@" + s.Addr()
	require.Equal(t, result{0, "in\n", ""}, call(t, url, "run", "x", "--", "echo", "in"))
}

func TestAllKindsOfServers(t *testing.T) {
	t.Parallel()
	t.Run("cluster", func(t *testing.T) {
		t.Parallel()
		cluster := redistest.StartCluster(t, 2)
		node := serverURL(cluster.Masters[0])
		for _, query := range []string{
			"?cluster=true", "?addr=" + cluster.Masters[1].Addr(), "?addr=" + cluster.Masters[1].Addr() + "&cluster=true&dial_timeout=2s",
		} {
			for _, name := range []string{"a", "b"} { // one of them on the other node, see below
				require.Equal(t, result{0, "in\n", ""}, call(t, node+query, "run", name, "--", "echo", "in"))
			}
		}
		refused(t, call(t, node, "run", "a", "--", "true"), exitUsage, "as that of a cluster (see help connection)")
		require.Equal(t, 0, call(t, node, "run", "b", "--", "true").code)
		for _, s := range cluster.Masters {
			onlyFences(t, s.Client())
		}

		master, err := cluster.Client().MasterForKey(t.Context(), "fairlock:{a}:lock")
		require.NoError(t, err)
		for _, s := range cluster.Masters {
			if s.Addr() != master.Options().Addr {
				s.Pause() // a's locks do not need it
				defer s.Continue()
			}
		}
		for range 3 {
			require.Equal(t, 0, call(t, "redis://"+master.Options().Addr+"?cluster=true", "run", "a", "--", "true").code)
		}
	})
	t.Run("Sentinel", func(t *testing.T) {
		t.Parallel()
		s := redistest.StartTCP(t)
		url := "redis://" + sentinelOf(t, s) + "?master_name=main"
		require.Equal(t, result{0, "in\n", ""}, call(t, url, "run", "x", "--", "echo", "in"))
		onlyFences(t, s.Client())
		require.NoError(t, s.Client().ConfigSet(t.Context(), "requirepass", "secret").Err())
		cmd := withEnv(command(t, url, "run", "x", "--", "echo", "in"), envPassword+"=secret")
		require.Equal(t, result{0, "in\n", ""}, begin(t, cmd).wait())
	})
	t.Run("TLS", func(t *testing.T) {
		t.Parallel()
		dir, port := certificate(t), redistest.FreePort(t)
		s := redistest.StartTCP(t, "--tls-port", strconv.Itoa(port), "--tls-cert-file", dir+"/cert", "--tls-key-file", dir+"/key",
			"--tls-auth-clients", "no")
		url := fmt.Sprintf("rediss://localhost:%d", port)
		refused(t, call(t, url, "run", "x", "--", "true"), exitUnreachable, "certificate")
		require.Equal(t, result{0, "in\n", ""}, call(t, url+"?skip_verify=true", "run", "x", "--", "echo", "in"))
		trusting := withEnv(command(t, url, "run", "x", "--", "echo", "in"), "SSL_CERT_FILE="+dir+"/cert")
		require.Equal(t, result{0, "in\n", ""}, begin(t, trusting).wait())
		onlyFences(t, s.Client())
	})
}

// sentinelOf starts a Sentinel that watches over a server by the name main, and returns its address.
func sentinelOf(t *testing.T, s *redistest.Server) string {
	t.Helper()
	host, port, err := net.SplitHostPort(s.Addr())
	require.NoError(t, err)
	own := redistest.FreePort(t)
	config := fmt.Sprintf("port %d\nbind 127.0.0.1\ndir %s\nsentinel monitor main %s %s 1\n", own, t.TempDir(), host, port)
	cmd := exec.Command("redis-server", fileWith(t, config), "--sentinel")
	require.NoError(t, cmd.Start())
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	addr := net.JoinHostPort("127.0.0.1", strconv.Itoa(own))
	sentinel := redis.NewSentinelClient(&redis.Options{Addr: addr})
	defer func() { _ = sentinel.Close() }()
	require.Eventually(t, func() bool {
		_, err := sentinel.GetMasterAddrByName(t.Context(), "main").Result()
		return err == nil
	}, soon, 10*time.Millisecond)
	return addr
}

// certificate makes one for localhost that vouches for itself, in the files cert and key of a directory.
func certificate(t *testing.T) string {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(t, err)
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), DNSNames: []string{"localhost"}, NotBefore: time.Now().Add(-time.Hour),
		NotAfter: time.Now().Add(time.Hour), IsCA: true, BasicConstraintsValid: true,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	require.NoError(t, err)
	secret, err := x509.MarshalPKCS8PrivateKey(key)
	require.NoError(t, err)
	dir := t.TempDir()
	for name, block := range map[string]*pem.Block{"cert": {Type: "CERTIFICATE", Bytes: der}, "key": {Type: "PRIVATE KEY", Bytes: secret}} {
		require.NoError(t, os.WriteFile(filepath.Join(dir, name), pem.EncodeToMemory(block), 0o600))
	}
	return dir
}
