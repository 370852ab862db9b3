//go:build unix

package main

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"math/big"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fairlock/fairlock-go/internal/tools/redistest"
)

// certify writes, into a directory, a certificate that signs itself, name.pem, and its key, name.key.
func certify(t *testing.T, dir, name string) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(t, err)
	of := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: name}, DNSNames: []string{"localhost"},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		BasicConstraintsValid: true, IsCA: true,
	}
	der, err := x509.CreateCertificate(rand.Reader, of, of, &key.PublicKey, key)
	require.NoError(t, err)
	private, err := x509.MarshalPKCS8PrivateKey(key)
	require.NoError(t, err)
	for file, block := range map[string]*pem.Block{name + ".pem": {Type: "CERTIFICATE", Bytes: der},
		name + ".key": {Type: "PRIVATE KEY", Bytes: private}} {
		require.NoError(t, os.WriteFile(filepath.Join(dir, file), pem.EncodeToMemory(block), 0o600))
	}
}

// A server that wants certificates of its clients is used with those of files, by flags or by the environment; also by
// the guard of a fairlock that was killed, and by a fairlock within CMD, wherever that runs.
func TestConnection_TLSFiles(t *testing.T) {
	f := newFixture(t)
	dir, port := t.TempDir(), fmt.Sprint(redistest.FreePort(t))
	certify(t, dir, "server")
	certify(t, dir, "client")
	file := func(name string) string { return filepath.Join(dir, name) }
	f.server = redistest.Start(t, "--tls-port", port, "--tls-cert-file", file("server.pem"), "--tls-key-file",
		file("server.key"),
		"--tls-ca-cert-file", file("client.pem"), "--tls-auth-clients", "yes")
	f = f.at("rediss://localhost:" + port)
	flags := []string{"--tls-ca", file("server.pem"), "--tls-cert", file("client.pem"), "--tls-key", file("client.key")}

	// Without --tls-ca it reads the certificates of the machine, which takes seconds with -race and load.
	refused(t, f.call("list", "--tls-ca", file("client.pem")), exitUnreachable, "certificate signed by unknown authority")
	refused(t, f.call("list", flags[0], flags[1]), exitUnreachable,
		"that port requires a client certificate: use --tls-cert and --tls-key")
	require.Contains(t, f.done(append([]string{"list"}, flags...)...), "\nno locks in this namespace or in any other\n")

	plain := redistest.StartTCP(t)
	noTLS, tls := f.at("redis://localhost:"+port), f.at("rediss://"+plain.Addr())
	const speaks, speaksNot = "; that port speaks TLS: begin the URL with rediss://",
		"that port does not speak TLS: begin the URL with redis://"
	refused(t, noTLS.call("list"), exitUnreachable, speaks)
	require.Contains(t, noTLS.call("doctor").out, speaks)
	refused(t, tls.call("list"), exitUnreachable, "; "+speaksNot)
	require.Contains(t, tls.call("doctor").out, "; "+speaksNot)
	refused(t, tls.attempt("x --wait 1s"), exitTimeout, "timed out after 1s waiting for x: "+speaksNot)
	unverified := f.at(f.url + "?skip_verify=true")
	require.Contains(t, unverified.done(append([]string{"list"}, flags[2:]...)...), "\nno locks in this namespace")

	m := f.client("").Mutex("x")
	relative := f.with(envTLSCA+"=server.pem", envTLSCert+"=client.pem", envTLSKey+"=client.key")
	begin := func(args ...string) *running {
		cmd := relative.command(append([]string{"run", "x"}, args...)...)
		cmd.Dir = dir
		return f.start(cmd)
	}
	require.Equal(t, result{out: "in\n"}, begin("--", "sh", "-c", "env | grep FAIRLOCK_TLS; echo in").wait(),
		"CMD does not know the server")
	inner := program + " run y -- echo in"
	require.Equal(t, result{out: "in\n"}, begin("--pass-redis", "--", "sh", "-c", "cd / && "+inner).wait())
	killed := begin("--ttl", "1h", "--", "sh", "-c", "echo up; sleep 600")
	killed.expect("up\n")
	killed.signal(syscall.SIGKILL)
	f.hold(m.Lock)

	refused(t, f.call("list", "--tls-cert", file("client.pem"), "--tls-key", file("server.key")), exitUsage,
		"private key does not match public key")
	require.Contains(t, f.start(relative.command("list")).wait().errs, "open client.pem: no such file")
}
