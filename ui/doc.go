// Package ui serves a web page that shows who holds the locks of a namespace and who waits for them, and what a check
// of the server has found.
//
// The page has no login. Put it behind the middleware or the proxy that guards your other internal pages. It works
// under any path, because all of its links are relative:
//
//	page, err := ui.NewHandler(rdb, ui.Options{Namespace: "billing"})
//	mux.Handle("/locks/", requireLogin(http.StripPrefix("/locks", page)))
//
// # What it costs Redis
//
// Nothing is read while nobody looks, and everybody who looks sees what was read once. The locks are searched at most
// every 5 s and for at most 2 % of its time, in steps of half a millisecond. If the next search is not soon, the page
// says when it comes. One lock is read at most every 400 ms, with 1,000 of its holders and 100 of its waiters. The
// server is checked at most every minute, or if it does not answer, every 5 s. Scripts are sent so that Redis lets them
// read only, where it can.
//
// A Redis that does not reply holds at most one read of each of these, however many look. A page waits for half a
// second, and then shows what was read last, at what time that was, and for how long Redis has not answered. That time
// is no load, so it does not delay the next search.
//
// # What it shows
//
// Tokens, and what stands in Redis and is no token of this library, never leave the server. Names of locks can have any
// bytes. The page shows them as they are if they print, and otherwise quoted as in Go. It runs no inline scripts and
// styles, and works without JavaScript, which only refreshes it.
package ui
