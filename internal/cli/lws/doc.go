// Package lws is what kubectl lockstep does with LeaderWorkerSets: read one with its plan, read a
// manifest, and change one.
//
// It reads through the operator's lwscache and decides with the operator's functions, with the user's
// credentials. Writes are patches of sets, or dry runs. It knows no flags, and not how results are shown.
package lws
