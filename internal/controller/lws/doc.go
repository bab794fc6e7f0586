// Package lws reconciles LeaderWorkerSets and their groups.
//
// It knows which watch event concerns which set or group, and the order of a reconcile: read
// once, decide once, write what was decided, report. It refuses to know what is decided and how
// it is written.
//
// Both reconcilers share the pass that carries out a plan, its memory and most watches: one
// package holds them.
package lws
