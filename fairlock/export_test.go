package fairlock

// What tests of this package look at from outside.
var (
	Due         = due
	NextRenewal = nextRenewal
)

// The actions that can be due of a lease.
const (
	Nothing = nothing
	Renewal = renewal
	Expiry  = expiry
)
