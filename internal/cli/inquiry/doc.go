// Package inquiry reads what explains why claims are there: the claims, the pods
// and workloads of their namespace, and what stands behind them.
//
// It knows how to get at that with little permission, without discovery, and on a
// cluster that has never heard of Lockstep. What may not be read is noted, and
// never taken for absent. It refuses to judge, which is package protect's, and to
// write: a DELETE goes out only as one that is tried and not done.
package inquiry
