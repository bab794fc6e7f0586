// Package protect keeps a claim that is in use.
package protect
