// Package dbtest starts private database servers, for tests and for bench. Each listens on a Unix socket in a directory
// of its own, and its data is gone when it stops. The package has no driver. Its users connect by the DSN.
package dbtest

import (
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"
)

// Server is a running database server. It is stopped with the process that has started it.
type Server struct {
	Title string // its name and version
	// for database/sql: of the driver pgx (github.com/jackc/pgx/v5/stdlib) or mysql (github.com/go-sql-driver/mysql)
	DSN string

	dir  string // temporary
	data string // in it
	as   *user  // nil: the user of this process
	cmd  *exec.Cmd
	end  chan struct{} // closed when cmd has ended
	quit syscall.Signal
}

// StartPostgres starts a PostgreSQL with the superuser postgres and the empty database postgres. It is found in the
// PATH, or where Debian has it. The error says what to install if it is not there.
func StartPostgres() (*Server, error) {
	const hint = "PostgreSQL is needed (Debian: apt-get install postgresql)"
	bin, err := find(hint, "postgres", "/usr/lib/postgresql/*/bin", "/opt/homebrew/opt/postgresql*/bin")
	if err != nil {
		return nil, err
	}
	if bin, err = filepath.EvalSymlinks(bin); err != nil { // initdb is beside it
		return nil, err
	}
	s, err := prepare(bin, "postgres", sigQuit) // a killed one would leave shared memory behind
	if err != nil {
		return nil, err
	}
	s.DSN = "host=" + s.dir + " user=postgres dbname=postgres"
	err = s.run(filepath.Join(filepath.Dir(bin), "initdb"), "-D", s.data, "-U", "postgres", "-A", "trust", "-E", "UTF8",
		"--no-locale",
		"--no-sync")
	if err == nil {
		err = s.serve(func() bool { // it accepts connections earlier, and refuses them
			status, _ := os.ReadFile(filepath.Join(s.data, "postmaster.pid"))
			lines := strings.Split(string(status), "\n")
			return len(lines) > 7 && strings.TrimSpace(lines[7]) == "ready"
		}, bin, "-D", s.data, "-k", s.dir, "-c", "listen_addresses=", "-c", "fsync=off", "-c", "shared_buffers=16MB")
	}
	return s.orStop(err)
}

// StartMariaDB starts a MariaDB with the user root, who needs no password, and the empty database test. It is found in
// the PATH, or where Debian has it. The error says what to install if it is not there.
func StartMariaDB() (*Server, error) {
	const hint = "MariaDB is needed (Debian: apt-get install mariadb-server)"
	bin, err := find(hint, "mariadbd", "/usr/sbin", "/opt/homebrew/opt/mariadb/bin")
	if err != nil {
		return nil, err
	}
	install, err := find(hint, "mariadb-install-db", "/usr/bin", filepath.Dir(bin))
	if err != nil {
		return nil, err
	}
	s, err := prepare(bin, "mysql", sigKill)
	if err != nil {
		return nil, err
	}
	socket := filepath.Join(s.dir, "s")
	s.DSN = "root@unix(" + socket + ")/test"
	err = s.run(install, "--no-defaults", "--datadir="+s.data, "--auth-root-authentication-method=normal",
		"--skip-name-resolve")
	if err == nil {
		err = s.serve(func() bool {
			conn, err := net.Dial("unix", socket)
			if err == nil {
				_ = conn.Close()
			}
			return err == nil
		}, bin, "--no-defaults", "--datadir="+s.data, "--socket="+socket, "--skip-networking", "--pid-file="+
			filepath.Join(s.dir, "pid"),
			"--innodb-buffer-pool-size=32M", "--innodb-flush-log-at-trx-commit=0")
	}
	return s.orStop(err)
}

// find returns the path of a program. Of several in the folders, the newest version counts.
func find(hint, name string, folders ...string) (string, error) {
	if path, err := exec.LookPath(name); err == nil {
		return filepath.Abs(path)
	}
	for _, folder := range folders {
		found, _ := filepath.Glob(filepath.Join(folder, name))
		if len(found) > 0 {
			return slices.MaxFunc(found, func(a, b string) int { // 9 comes before 15
				if len(a) != len(b) {
					return len(a) - len(b)
				}
				return strings.Compare(a, b)
			}), nil
		}
	}
	return "", errors.New(hint)
}

// prepare makes the directories of a server. The servers refuse to run as root: the named user takes its place, or
// nobody.
func prepare(bin, name string, quit syscall.Signal) (*Server, error) {
	version, err := exec.Command(bin, "--version").Output()
	if err != nil {
		return nil, err
	}
	s := &Server{Title: strings.TrimSpace(string(version)), quit: quit}
	if s.as, err = unprivileged(name); err != nil {
		return nil, err
	}
	if s.dir, err = os.MkdirTemp("", "fairlock"); err != nil { // a short path: that of a socket is limited
		return nil, err
	}
	s.data = filepath.Join(s.dir, "data")
	err = os.Mkdir(s.data, 0o700)
	for _, dir := range []string{s.dir, s.data} {
		err = errors.Join(err, s.as.own(dir))
	}
	return s.orStop(err)
}

// run runs a program to its end, in the directory of the server.
func (s *Server) run(path string, args ...string) error {
	cmd := exec.Command(path, args...)
	cmd.Dir, cmd.SysProcAttr = s.dir, attributes(s.as, sigKill)
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("%s: %w\n%s", path, err, out)
	}
	return nil
}

// serve starts the server, and waits until it is ready. What it says is in the file log, which the error has.
func (s *Server) serve(ready func() bool, path string, args ...string) error {
	log, err := os.Create(filepath.Join(s.dir, "log"))
	if err != nil {
		return err
	}
	defer func() { _ = log.Close() }()
	s.cmd = exec.Command(path, args...)
	s.cmd.Dir, s.cmd.Stdout, s.cmd.Stderr, s.cmd.SysProcAttr = s.dir, log, log, attributes(s.as, s.quit)
	if err := s.cmd.Start(); err != nil {
		s.cmd = nil
		return err
	}
	s.end = make(chan struct{})
	go func() {
		defer close(s.end)
		_ = s.cmd.Wait() // it was told to end, or the log says why
	}()
	for until := time.Now().Add(time.Minute); !ready(); {
		select {
		case <-s.end:
			until = time.Time{}
		case <-time.After(10 * time.Millisecond): // no event says so
		}
		if time.Now().After(until) {
			text, _ := os.ReadFile(log.Name())
			return fmt.Errorf("%s did not start:\n%s", path, text)
		}
	}
	return nil
}

func (s *Server) orStop(err error) (*Server, error) {
	if err != nil {
		s.Stop()
		return nil, err
	}
	return s, nil
}

// Stop ends the server, and removes its data.
func (s *Server) Stop() {
	if s.cmd != nil {
		_ = s.cmd.Process.Signal(s.quit)
		<-s.end
	}
	_ = os.RemoveAll(s.dir)
}
