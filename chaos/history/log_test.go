package history_test

import (
	"bufio"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/fairlock/fairlock-go/chaos/history"
)

// childEnv makes the test binary a process that writes a log into this directory until it is killed.
const childEnv = "FAIRLOCK_HISTORY_CHILD"

func TestMain(m *testing.M) {
	if dir, ok := os.LookupEnv(childEnv); ok {
		writeForEver(dir)
	}
	os.Exit(m.Run())
}

// writeForEver has four goroutines write to one log, and one tell on stdout which of its lines were written.
func writeForEver(dir string) {
	log, err := history.Create(dir, 7)
	if err != nil {
		panic(err)
	}
	for worker := range 4 {
		go func() {
			for call := 0; ; call++ {
				err := log.Write(history.Event{Op: history.Ask, Worker: worker, Call: call, Lock: strings.Repeat("x", call%300+1)})
				if err != nil {
					panic(err)
				}
				if worker == 0 && call%100 == 0 {
					_, _ = os.Stdout.WriteString(strconv.Itoa(call) + "\n")
				}
			}
		}()
	}
	_, _ = io.Copy(io.Discard, os.Stdin) // until the test ends
	os.Exit(1)
}

func create(t *testing.T, dir string, process int) *history.Log {
	t.Helper()
	log, err := history.Create(dir, process)
	require.NoError(t, err)
	t.Cleanup(func() { _ = log.Close() })
	return log
}

func TestWhatIsWrittenIsRead(t *testing.T) {
	dir := t.TempDir()
	whole := history.Event{
		At: 30, Process: 2, Call: 3, Worker: 4, Op: history.Granted, Lock: "a\nb\"<\xe2\x80\xa8", Token: "t",
		Fence: 1<<53 - 1, Ticket: 6, Position: 7, Until: 1 << 60, Err: "e",
	}
	two := create(t, dir, 2)
	require.NoError(t, two.Write(whole))
	one := create(t, dir, 1)
	require.NoError(t, one.Write(history.Event{At: 40, Process: 5, Op: history.Ask, Lock: "x"}))
	require.NoError(t, one.Write(history.Event{At: 20, Op: history.Ask, Lock: "x", Call: 1}))
	require.NoError(t, one.Write(history.Event{At: 20, Op: history.Ask, Lock: "x", Call: 2}))
	require.NoError(t, os.WriteFile(filepath.Join(dir, "faults.json"), []byte("[]"), 0o600))

	events, err := history.Read(dir)
	require.NoError(t, err)
	assert.Equal(t, []history.Event{
		{At: 20, Process: 1, Op: history.Ask, Lock: "x", Call: 1},
		{At: 20, Process: 1, Op: history.Ask, Lock: "x", Call: 2},
		whole,
		{At: 40, Process: 1, Op: history.Ask, Lock: "x"},
	}, events)

	events, err = history.Read(filepath.Join(dir, "2.jsonl"))
	require.NoError(t, err)
	assert.Equal(t, []history.Event{whole}, events)

	_, err = history.Create(dir, 2)
	require.ErrorIs(t, err, os.ErrExist)
	_, err = history.Read(dir, filepath.Join(dir, "2.jsonl"))
	require.ErrorContains(t, err, "process 2 has another log")
	_, err = history.Read(t.TempDir())
	require.ErrorContains(t, err, "no logs")
	_, err = history.Read(filepath.Join(dir, "3.jsonl"))
	require.ErrorIs(t, err, os.ErrNotExist)
}

func TestTheTimeIsThatOfTheMachine(t *testing.T) {
	log := create(t, t.TempDir(), 1)
	before := history.Now()
	require.NoError(t, log.Write(history.Event{Op: history.Ask, Lock: "x"}))
	after := history.Now()
	require.NoError(t, log.Close())
	require.Error(t, log.Write(history.Event{Op: history.Ask, Lock: "x"}))

	// Nanos may be wrong by as much as the clock's readings are apart, and by less than a microsecond.
	const most = int64(time.Microsecond)
	for range 1000 {
		from := history.Now()
		now := time.Now()
		to := history.Now()
		require.GreaterOrEqual(t, history.Nanos(now), from-most)
		require.LessOrEqual(t, history.Nanos(now), to+most)
		require.Equal(t, int64(time.Hour), history.Nanos(now.Add(time.Hour))-history.Nanos(now))
	}
	uptime, err := os.ReadFile("/proc/uptime")
	require.NoError(t, err)
	seconds, err := strconv.ParseFloat(strings.Fields(string(uptime))[0], 64)
	require.NoError(t, err)
	assert.InDelta(t, seconds, float64(before)/1e9, 60, "not since the machine's start")
	assert.Less(t, before, after)
}

func TestATimeIsSetIfThereIsNone(t *testing.T) {
	dir := t.TempDir()
	log := create(t, dir, 1)
	before := history.Now()
	require.NoError(t, log.Write(history.Event{Op: history.Ask, Lock: "x"}))
	after := history.Now()
	events, err := history.Read(dir)
	require.NoError(t, err)
	require.Len(t, events, 1)
	assert.Less(t, before, events[0].At)
	assert.Greater(t, after, events[0].At)
}

func TestATornLastLineIsLeftOut(t *testing.T) {
	line := `{"at":20,"process":1,"call":1,"worker":0,"op":"ask","lock":"é"}`
	for n := 1; n <= len(line); n++ {
		name := filepath.Join(t.TempDir(), "1.jsonl")
		require.NoError(t, os.WriteFile(name, []byte(line+"\n"+line[:n]), 0o600))
		events, err := history.Read(name)
		require.NoError(t, err, line[:n])
		want := 1
		if n == len(line) {
			want = 2 // all but the end of the line
		}
		assert.Len(t, events, want, line[:n])
	}
}

func TestWhatIsMalformedIsRefused(t *testing.T) {
	line := `{"at":20,"process":1,"call":1,"worker":0,"op":"ask","lock":"x"}`
	for name, text := range map[string]string{
		"a torn line before the last": line[:30] + "\n" + line + "\n",
		"a torn line with its end":    line + "\n" + line[:30] + "\n",
		"no JSON":                     "x",
		"an empty line":               line + "\n\n" + line + "\n",
		"two in a line":               line + line + "\n",
		"something behind it":         line + "}\n",
		"another field":               strings.Replace(line, "call", "Colour", 1) + "\n",
		"no such op":                  strings.Replace(line, "ask", "sleep", 1) + "\n",
		"no such op, last":            strings.Replace(line, "ask", "sleep", 1),
		"no time":                     strings.Replace(line, "20", "0", 1) + "\n",
		"no lock":                     strings.Replace(line, `"x"`, `""`, 1) + "\n",
		"no fence":                    strings.Replace(line, "ask", "granted", 1) + "\n",
		"no process":                  strings.Replace(line, `"process":1`, `"process":-1`, 1) + "\n",
		"another process":             line + "\n" + strings.Replace(line, `"process":1`, `"process":2`, 1) + "\n",
	} {
		t.Run(name, func(t *testing.T) {
			file := filepath.Join(t.TempDir(), "1.jsonl")
			require.NoError(t, os.WriteFile(file, []byte(text), 0o600))
			_, err := history.Read(file)
			require.ErrorContains(t, err, file)
		})
	}
}

func TestManyWriteOneLog(t *testing.T) {
	const workers, calls = 8, 500
	dir := t.TempDir()
	log := create(t, dir, 1)
	var all sync.WaitGroup
	for worker := range workers {
		all.Go(func() {
			for call := range calls {
				err := log.Write(history.Event{Op: history.Ask, Worker: worker, Call: call, Lock: strings.Repeat("x", call+1)})
				if err != nil {
					t.Error(err)
				}
			}
		})
	}
	all.Wait()
	events, err := history.Read(dir)
	require.NoError(t, err)
	assert.Len(t, events, workers*calls)
	for worker := range workers {
		var list []int
		for _, e := range events {
			if e.Worker == worker {
				list = append(list, e.Call)
			}
		}
		assert.True(t, slices.IsSorted(list), "worker %d", worker)
	}
}

func TestALineIsOneWrite(t *testing.T) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	writes := func() (n int) { // calls of write(2) and the like, by this thread
		text, err := os.ReadFile("/proc/thread-self/io")
		require.NoError(t, err)
		_, rest, ok := strings.Cut(string(text), "syscw: ")
		require.True(t, ok, "%s", text)
		n, err = strconv.Atoi(strings.Fields(rest)[0])
		require.NoError(t, err)
		return n
	}
	log := create(t, t.TempDir(), 1)
	before := writes()
	for range 100 {
		require.NoError(t, log.Write(history.Event{Op: history.Ask, Lock: strings.Repeat("x", 5000)}))
	}
	assert.Equal(t, 100, writes()-before)
}

func TestAKilledProcessLosesNoLineThatWasWritten(t *testing.T) {
	for range 5 {
		dir := t.TempDir()
		cmd := exec.Command(os.Args[0])
		cmd.Env = append(os.Environ(), childEnv+"="+dir)
		in, err := cmd.StdinPipe()
		require.NoError(t, err)
		out, err := cmd.StdoutPipe()
		require.NoError(t, err)
		require.NoError(t, cmd.Start())
		lines := bufio.NewScanner(out)
		told := -1
		for told < 1000 && lines.Scan() {
			told, err = strconv.Atoi(lines.Text())
			require.NoError(t, err)
		}
		require.NoError(t, cmd.Process.Kill())
		for lines.Scan() {
			if n, err := strconv.Atoi(lines.Text()); err == nil {
				told = n // the last one may be torn
			}
		}
		require.Error(t, cmd.Wait())
		_ = in.Close()

		events, err := history.Read(dir)
		require.NoError(t, err)
		calls := [4]int{} // how many of each worker
		for _, e := range events {
			require.Equal(t, calls[e.Worker], e.Call, "worker %d has lost a line", e.Worker)
			calls[e.Worker]++
			require.Equal(t, 7, e.Process)
		}
		assert.Greater(t, calls[0], max(told, 1000))
	}
}
