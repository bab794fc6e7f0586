// Package controller ties watches to keys and keys to passes.
//
// It knows which event concerns which set or group, and the order of a pass:
// look once, decide once, write what was decided, tell. It refuses to know what
// is decided and how it is written.
package controller
