package inspect

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/fairlock/fairlock-go/admin"
	"github.com/fairlock/fairlock-go/fairlock"
	"github.com/fairlock/fairlock-go/fairlocktest"
)

// What an operator types that is not quite a name: its beginning or its end alone, a letter more or less, two that have
// changed places, another case, spaces. What is only a little like it is not meant.
func TestLock_Meant(t *testing.T) {
	used := []ID{
		{fairlock.KindMutex, "billing:42"}, {fairlock.KindKeyedSemaphore, "gpu"}, {fairlock.KindMutex,
			"invoices:export"}, {fairlock.KindMutex, "shop"},
	}
	for typed, want := range map[string]string{
		"invoice:export": "mutex invoices:export", "invoices:export" +
			" ": "mutex invoices:export", "Invoices:Export": "mutex invoices:export",
		"invocies:export": "mutex invoices:export", "invoices-exports": "mutex invoices:export",
		"export":            "mutex invoices:export",
		"invoices:export:2": "mutex invoices:export", "bill": "mutex billing:42", "billing:43": "mutex billing:42",
		"gpus":  "keyed gpu",
		"order": "", "x": "", "import:nightly": "", "\xff": "",
	} {
		require.Equal(t, want, said(Lock{ID: ID{Name: typed}}.Meant(used)), typed)
	}
	lock := func(kind fairlock.Kind, fence uint64) Lock {
		return Lock{ID: ID{kind, "gpu"}, State: admin.State{Fence: fence}}
	}
	require.Equal(t, "keyed gpu", said(lock(fairlock.KindSemaphore, 0).Meant(used)), "another kind")
	require.Equal(t, "keyed gpu", said(lock(fairlock.KindSemaphore, 1).Meant(used)), "also if this one was used lately")
	require.Empty(t, lock("", 0).Meant(used), "all kinds were looked at")
	for _, l := range []Lock{
		{ID: ID{Name: "gpus"}, State: admin.State{Fence: 1}}, {ID: ID{Name: "gpus"}, State: admin.State{Resized: true}},
		{ID: ID{Name: "gpus"}, State: admin.State{Waiting: 1}}, {ID: ID{Name: "gpus"}, Err: errors.New("no")},
	} {
		require.Empty(t, l.Meant(used), "it is the one that is meant")
	}

	var many []ID
	for i := range 30 {
		many = append(many, ID{fairlock.KindMutex, fmt.Sprint("job:", i)})
	}
	meant := Lock{ID: ID{Name: "job:17 "}}.Meant(many)
	require.Len(t, meant, guesses)
	require.Equal(t, "job:17", meant[0].Name, "the most alike is the first")
}

// said is a list in one line.
func said(all []ID) string {
	texts := make([]string, len(all))
	for i, id := range all {
		texts[i] = id.String()
	}
	return strings.Join(texts, ", ")
}

// A namespace that has no locks is called so, and those that have some are named. What was not searched is not called
// empty.
func TestServer_NoLocks(t *testing.T) {
	inBubble(t, func(t *testing.T, m *fairlocktest.Server, s *Server, link *fairlocktest.Link) {
		says := func(namespace string) string {
			s := *s
			s.Namespace = namespace
			return s.NoLocks(s.Namespaces(t.Context()))
		}
		require.Equal(t, "no locks in this namespace or in any other", says("shop"))
		for _, namespace := range []string{"a", "billing", "shop live", "shops"} {
			m.Mutex("x").In(namespace).HoldAs("web-1")
		}
		used, elsewhere, err := s.Used(t.Context(), "x")
		require.NoError(t, err)
		require.Empty(t, used)
		require.Equal(t, []string{"a", "billing", "shop live", "shops"}, elsewhere)
		_, elsewhere, err = s.Used(t.Context(), "y")
		require.NoError(t, err)
		require.Empty(t, elsewhere)
		require.Empty(t, says("billing"))
		require.Equal(t, `no locks in this namespace; namespaces with locks: shops, "shop live", a, billing`, says("Shops "))
		for i := range 20 {
			m.Mutex("x").In(fmt.Sprint("n", i)).HoldAs("web-1")
		}
		require.Regexp(t, `: "shop live", shops, .* and 14 more$`, says("shop liv"))

		link.Hang()
		_, _, err = s.Used(t.Context(), "x")
		require.EqualError(t, err, "not finished within 3s")
		require.Equal(t, "similar names could not be searched: not finished within 3s", NotSearched(err))
		require.Empty(t, says("shop"), "nobody knows")
		require.Equal(t, "no locks were found in this namespace; namespaces with locks: x",
			s.NoLocks([]string{"x"}, context.DeadlineExceeded))
	})
}
