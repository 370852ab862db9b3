package main

import (
	"crypto/tls"
	"crypto/x509"
	"os"
	"path/filepath"

	"github.com/spf13/pflag"
)

// The environment variables that name the files of a TLS connection. The CMD of fairlock run does not get them.
const (
	envTLSCA   = "FAIRLOCK_TLS_CA"
	envTLSCert = "FAIRLOCK_TLS_CERT"
	envTLSKey  = "FAIRLOCK_TLS_KEY" //nolint:gosec // its name
)

// tlsFiles are the files, in PEM, of a TLS connection. Each may be "".
type tlsFiles struct {
	CA   string // the certificates that sign the server's; without it, those of the system
	Cert string // this client's certificate
	Key  string // its key
}

func (f *tlsFiles) flags(set *pflag.FlagSet) {
	for _, flag := range []struct {
		to              *string
		name, env, text string
	}{
		{&f.CA, "tls-ca", envTLSCA, "`FILE` of the certificates that sign the server's (default $" + envTLSCA +
			", or those of the system)"},
		{&f.Cert, "tls-cert", envTLSCert, "`FILE` of the client's certificate, if the server requires one (default $" +
			envTLSCert + ")"},
		{&f.Key, "tls-key", envTLSKey, "`FILE` of the key of --tls-cert (default $" + envTLSKey + ")"},
	} {
		set.StringVar(flag.to, flag.name, os.Getenv(flag.env), flag.text)
		set.Lookup(flag.name).DefValue = "" // the help text has it already
	}
}

// absolute returns the files with absolute paths, for a process with another working directory.
func (f tlsFiles) absolute() tlsFiles {
	for _, name := range []*string{&f.CA, &f.Cert, &f.Key} {
		if path, err := filepath.Abs(*name); err == nil && *name != "" {
			*name = path
		}
	}
	return f
}

// env returns the environment variables for another fairlock that uses the same files.
func (f tlsFiles) env() []string {
	f = f.absolute()
	return []string{envTLSCA + "=" + f.CA, envTLSCert + "=" + f.Cert, envTLSKey + "=" + f.Key}
}

// read reads the files and returns a function that sets them in a configuration. Without files, set does nothing.
func (f tlsFiles) read(scheme string) (set func(*tls.Config), err error) {
	switch {
	case f == tlsFiles{}:
		return func(*tls.Config) {}, nil
	case scheme != "rediss":
		return nil, usage("--tls-ca, --tls-cert and --tls-key need a URL that begins with rediss://")
	case (f.Cert == "") != (f.Key == ""):
		return nil, usage("--tls-cert and --tls-key need each other")
	}
	var own []tls.Certificate
	if f.Cert != "" {
		pair, err := tls.LoadX509KeyPair(f.Cert, f.Key)
		if err != nil {
			return nil, usage("--tls-cert and --tls-key: %w", err)
		}
		own = append(own, pair)
	}
	var roots *x509.CertPool
	if f.CA != "" {
		text, err := os.ReadFile(f.CA)
		if err != nil {
			return nil, usage("--tls-ca: %w", err)
		}
		if roots = x509.NewCertPool(); !roots.AppendCertsFromPEM(text) {
			return nil, usage("--tls-ca %s: there is no certificate in PEM", f.CA)
		}
	}
	return func(c *tls.Config) { c.RootCAs, c.Certificates = roots, own }, nil
}
