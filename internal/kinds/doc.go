// Package kinds starts and stops one watch for each kind that an API server need not serve.
//
// It knows when CustomResourceDefinitions come and go, and which version of a kind is
// served. It refuses to know what the objects mean, and what is kept of them.
package kinds
