package ui_test

import (
	"fmt"
	"log"
	"net/http"
	"net/http/httptest"

	"github.com/redis/go-redis/v9"

	"github.com/fairlock/fairlock-go/ui"
)

// The page stands beside a program's own routes, behind its own login.
func ExampleNewHandler() {
	rdb := redis.NewClient(&redis.Options{Addr: "localhost:6379", ContextTimeoutEnabled: true})
	page, err := ui.NewHandler(rdb, ui.Options{Namespace: "billing"})
	if err != nil {
		log.Fatal(err)
	}
	requireLogin := func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if user, _, ok := r.BasicAuth(); !ok || user != "operator" { // yours looks at the password, too
				http.Error(w, "who are you?", http.StatusUnauthorized)
				return
			}
			next.ServeHTTP(w, r)
		})
	}
	mux := http.NewServeMux()
	mux.Handle("/locks/", requireLogin(http.StripPrefix("/locks", page)))

	r := httptest.NewRequest(http.MethodGet, "/locks/style.css", nil)
	for _, user := range []string{"", "operator"} {
		r.SetBasicAuth(user, "secret")
		w := httptest.NewRecorder()
		mux.ServeHTTP(w, r)
		fmt.Println(w.Code)
	}
	if err := page.Close(); err != nil { // before rdb is closed
		log.Fatal(err)
	}
	_ = rdb.Close()
	// Output:
	// 401
	// 200
}
