// Package rights compares what the roles of the operator grant with what the operator asked the API
// server for in all drills.
package rights
