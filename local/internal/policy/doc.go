// Package policy evaluates the admission policies of Lockstep as older API servers do. It has tests only, and is here
// because the API server is.
package policy
