// Package lwscache is the one place that reads the cluster.
//
// It knows the indexes of the cache, how a chain of owners is followed, and when
// a cached look is not enough: what the cache misses is looked for live before
// it is called gone. It turns what it reads into the snapshots that decisions
// are made from. It refuses to decide anything, and it never writes.
package lwscache
