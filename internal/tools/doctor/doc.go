// Package doctor checks a Redis server for what fair locks need, and says what to do.
//
// A check either finds something out (it is ok, worth a warning, or a problem), or it could not: then it says what
// stood in its way, which is no fault of the server's. A service that forbids CONFIG and INFO is healthy as far as one
// can see.
//
// What the server says about itself is gathered once (facts); what that means is decided by functions without I/O. The
// rest is found out by doing: rights by trying each command in a form that changes nothing, locks by locking.
package doctor
