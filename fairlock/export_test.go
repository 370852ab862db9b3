package fairlock

// What tests of this package look at from outside.
var NextRenewal = nextRenewal
