// Package doctor checks a Redis server for what fair locks need, and says what to do.
//
// The result of a check is ok, a warning or a problem. If it could not be made, it says why, which is not a fault of
// the server. A service that forbids CONFIG and INFO is healthy as far as one can see.
//
// What the server says about itself is gathered once (facts); what that means is decided by functions without I/O. The
// rest is found out by doing: rights by trying each command in a form that changes nothing, locks by locking.
package doctor
