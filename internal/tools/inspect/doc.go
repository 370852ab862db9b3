// Package inspect finds and reads the locks of all kinds in a namespace, for programs that show them to an operator.
//
// Nothing is written: scripts are sent by EVALSHA_RO where the server has it and the user may use it. What one script
// or one SCAN does is bounded, so no call keeps the server from serving others. When ctx ends, every call returns at
// once; what go-redis is doing then is left to its own timeouts.
package inspect
