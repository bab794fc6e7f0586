// Package lwscache reads what decisions about sets and groups are made from.
//
// It knows the indexes of the cache, follows chains of owners, and reads live what the cache may
// lack. It refuses to decide anything, and it never writes.
package lwscache
