// Package ui serves a web page that shows the holders and waiters of a namespace's locks, and the results of a check of
// the server.
//
// The page has no login. Put it behind the middleware or the proxy that guards your other internal pages. It works
// under any path, because all of its links are relative:
//
//	page, err := ui.NewHandler(rdb, ui.Options{Namespace: "billing"})
//	mux.Handle("/locks/", requireLogin(http.StripPrefix("/locks", page)))
//
// # What it costs Redis
//
// Redis is read only while the page is open, and all viewers share one read. The locks are searched at most every 5 s
// and for at most 2 % of Redis's time, in steps of half a millisecond. If the next search is not soon, the page says
// when it comes. One lock is read at most every 400 ms, with 1,000 of its holders and 100 of its waiters. The server is
// checked at most every minute, or every 5 s if it does not answer. Scripts are sent by EVALSHA_RO where Redis has it,
// which lets them read only.
//
// While Redis does not reply, at most one read of each kind is under way, however many pages are open. A page waits for
// half a second. Then it shows what was read last, when that was, and how long Redis has not answered. That time is no
// load, so it does not delay the next search.
//
// # What it shows
//
// Tokens, and what other programs have written, never leave the server. Names of locks can have any bytes. The page
// shows printable names as they are, and others quoted as in Go. It has no inline scripts or styles, and works without
// JavaScript, which only refreshes it.
package ui
