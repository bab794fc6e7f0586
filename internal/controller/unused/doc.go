// Package unused has claims say whether any pod still names them, where nobody built
// in does: by the condition Unused.
//
// It knows which events may change that, and how long to wait before a claim says
// that it is unused: pods that are replaced, and claims that go with their pods, are
// to cost no write. It refuses to know what the condition is to say.
//
//	claim ──────────── settle ──┐
//	pod that went ──── settle ──┼─► DecideUnused, by the caches ─► act.Do
//	pod that came ──── at once ─┘
//
// The caches are enough: nothing is released by the word of a condition, and a pod
// that they are late to show is an event of its own.
package unused
