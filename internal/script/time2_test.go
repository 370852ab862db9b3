package script_test

import (
	"fmt"
	"time"

	"github.com/fairlock/fairlock-go/internal/script"
	"github.com/fairlock/fairlock-go/internal/tokens"
	"github.com/fairlock/fairlock-go/token"
)

func keyedKinds() (all []timedKind) {
	for _, keys := range []int{1, 10, 1000} {
		all = append(all, timedKind{fmt.Sprint("keyed by ", keys), 5, script.KeyedSemaphore, func(n int) token.Token {
			return keyedToken("c", tokens.Terms{TTL: time.Hour, Weight: 1, Permits: 5, Key: fmt.Sprint("tenant-", n%keys), Share: 1}, n)
		}})
	}
	return all
}
